"""Extra arguments of a server: those that are parsed, noted, or ignored without a note."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines.shapes import CONFIGS
from tests.support.pages.command_line import Run, runner
from tonnage.cli.fit.vllm.extra_arguments import BadArgumentError, parse_extra_arguments

ARGUMENTS = ("--config", str(CONFIGS / "llama-3.3-70b.json"), "--accelerator", "h100-sxm-80gb",
             "-tp", "4", "--max-model-len", "8192", "-o", "json")  # fmt: skip


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "fit")


def ask(fit: Run, *arguments: str) -> dict[str, Any]:
    _, out, err = fit(*ARGUMENTS, *arguments)
    assert not err
    answer = json.loads(out)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ([], {}),
        (["--performance-mode", "throughput"], {"throughput_batch": True}),
        (["--performance_mode=balanced"], {"throughput_batch": False}),
        (["--enable-lora", "--max-loras=2"], {"enable_lora": True, "max_loras": 2}),
        (["--speculative-config", '{"method": "ngram"}'], {"speculative_tokens": 1}),
        (["VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0"], {"graphs_in_budget": False}),
        (["--load-format", "dummy", "VLLM_ROCM_USE_AITER=1", "--port", "8000"], {}),
    ],
)
def test_arguments_of_the_memory_calculation_are_parsed(
    arguments: list[str], settings: dict[str, Any]
) -> None:
    parsed = parse_extra_arguments(arguments)
    assert dict(parsed.settings) == settings
    assert parsed.notes == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--enable-eplb"], "--enable-eplb was ignored: copies of experts"),
        (["--hf-overrides", '{"hidden_size": 1}'], "another config.json cannot be calculated"),
        (["-dcp", "2"], "-dcp was ignored: a KV cache"),
        (["VLLM_USE_V1=0"], "VLLM_USE_V1 was ignored: another engine"),
        (["VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1"], "ESTIMATE_CUDAGRAPHS was ignored"),
        (["--speculative-config", '{"method": "eagle3"}'], "a draft model cannot be calculated"),
        (["--max-num-sequences=8"], "--max-num-sequences is not known"),
        (["--gpu-mem", "0.5"], "--gpu-mem is not known"),
        (["--kv_cache_dtype_skip_layers", "1"], "layers with a larger KV cache"),
    ],
)
def test_an_ignored_argument_that_changes_memory_has_a_note(
    arguments: list[str], words: str
) -> None:
    (note,) = parse_extra_arguments(arguments).notes
    assert words in note


def test_every_argument_is_stated_in_one_word() -> None:
    stated = parse_extra_arguments(["--block_size", "1", "--enforce-eager", "A=b"]).stated
    assert {"--block-size=1", "--enforce-eager", "A=b"} <= stated


def test_an_invalid_value_names_the_flag() -> None:
    with pytest.raises(BadArgumentError, match="--max-num-seqs"):
        parse_extra_arguments(["--max-num-seqs", "many"])


def test_the_throughput_mode_doubles_the_default_batch_alone(fit: Run) -> None:
    plain = ask(fit)
    doubled = ask(fit, "--performance-mode", "throughput")
    assert doubled["perGPU"]["activationGiB"] > plain["perGPU"]["activationGiB"]
    given = ("--max-num-seqs", "256", "--max-num-batched-tokens", "8192")
    assert ask(fit, *given) == ask(fit, *given, "--performance-mode", "throughput")


def test_graphs_that_are_not_estimated_need_memory_outside_the_budget(fit: Run) -> None:
    without = ("--extra-args", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0")
    assert ask(fit)["perGPU"]["cudaGraphGiB"] > 0
    assert ask(fit, *without)["perGPU"]["cudaGraphGiB"] == 0
    full = ask(fit, *without, "--gpu-memory-utilization", "0.99")
    assert full["verdict"] == "does_not_fit"
    assert "graphs need" in full["reason"]
    assert "outside vLLM's share" in full["reason"]
    assert full["nextSteps"][0]["arguments"] == ["--gpu-memory-utilization 0.97"]


def test_a_longer_context_than_the_models_is_refused_unless_vllm_allows_it(fit: Run) -> None:
    longer = ("--max-model-len", "140000")
    refused = ask(fit, *longer)
    assert (refused["verdict"], "131072 tokens" in refused["reason"]) == ("refused", True)
    assert refused["nextSteps"][0]["arguments"] == ["--max-model-len 131072"]
    assert ask(fit, *longer, "--extra-args", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1")["verdict"] == "fits"


def test_a_quantisation_that_is_allowed_by_the_case_itself_is_not_refused(
    fit: Run, tmp_path: Path
) -> None:
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text())
    config["quantization_config"] = {"quant_method": "fbgemm_fp8"}
    case = {"id": "a", "model": {"config": config}, "accelerator": "h100-sxm-80gb"}
    allowed = {**case, "engine": {"extraArgs": ["--allow-deprecated-quantization"]}}
    path = tmp_path / "cases.jsonl"
    path.write_text(f"{json.dumps(case)}\n{json.dumps(allowed)}\n")
    verdicts = [json.loads(line)["verdict"] for line in fit("--batch", str(path))[1].splitlines()]
    assert verdicts == ["refused", "fits"]


def test_a_method_in_the_extra_arguments_counts_as_the_flag(fit: Run) -> None:
    old = ("--vllm-version", "0.11.0", "--weights-bytes", "42GiB")
    written = ask(fit, *old, "--extra-args", "--quantization gguf")
    assert written == ask(fit, *old, "--quantization", "gguf")
    assert written["perGPU"]["weightsGiB"] < 12


def test_text_that_no_shell_could_split_is_refused(fit: Run) -> None:
    code, _, err = fit(*ARGUMENTS, "--extra-args", '"')
    assert (code, "--extra-args: No closing quotation" in err) == (2, True)


def test_flags_of_one_question_with_a_batch_are_refused(fit: Run) -> None:
    code, out, err = fit("--batch", "-", "--accelerator", "mi300x", "--max-num-seqs", "8")
    assert (code, out) == (2, "")
    assert "--accelerator, --max-num-seqs: " in err
