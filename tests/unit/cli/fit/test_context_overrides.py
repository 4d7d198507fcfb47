"""Overrides of config.json that change the length of the context, as `tonnage fit` reads them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines.shapes import CONFIGS
from tests.support.pages.command_line import Run, runner

CONFIG = CONFIGS / "llama-3.1-8b.json"
FLAGS = ("--config", str(CONFIG), "--accelerator", "h100-sxm-80gb", "-tp", "1", "-o", "json")
LONGER = '{"max_position_embeddings": 262144}'
INVALID = '{"max_position_embeddings": -1}'


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "fit")


def batch(fit: Run, tmp_path: Path, *extra_args: str) -> dict[str, Any]:
    """The answer to a case with extra arguments."""
    engine = {"vllmVersion": "0.32.0", "extraArgs": list(extra_args)}
    case = {
        "id": "a",
        "model": {"config": json.loads(CONFIG.read_text())},
        "accelerator": "h100-sxm-80gb",
        "engine": engine,
    }
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(case) + "\n")
    _, out, _ = fit("--batch", str(path), "-o", "jsonl")
    answer = json.loads(out)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize(
    "arguments", [("--hf-overrides", LONGER), (f"--extra-args=--hf-overrides='{LONGER}'",)]
)
def test_a_stretched_context_is_the_models_own_length(fit: Run, arguments: tuple[str, ...]) -> None:
    _, plain, _ = fit(*FLAGS)
    _, stretched, _ = fit(*FLAGS, *arguments)
    assert "own length counts: 131,072 tokens" in plain
    assert "own length counts: 262,144 tokens" in stretched


def test_a_case_of_a_batch_stretches_the_context(fit: Run, tmp_path: Path) -> None:
    plain = batch(fit, tmp_path)
    stretched = batch(fit, tmp_path, "--hf-overrides", LONGER)
    assert "131072 are asked for" in plain["reason"]
    assert "262144 are asked for" in stretched["reason"]


def test_overrides_that_make_no_sense_are_refused_with_their_name(fit: Run, tmp_path: Path) -> None:
    code, _, err = fit(*FLAGS, "--hf-overrides", INVALID)
    assert code == 2
    assert "--hf-overrides or --rope-scaling: " in err
    assert "max_position_embeddings" in err
    error = batch(fit, tmp_path, "--hf-overrides", INVALID)["error"]
    assert "engine.extraArgs: with the overrides of config.json" in error


def test_overrides_of_more_than_the_context_are_ignored_with_a_note(fit: Run) -> None:
    _, out, _ = fit(*FLAGS, "--hf-overrides", '{"hidden_size": 8}')
    assert "--hf-overrides was ignored: another config.json cannot be calculated" in out
