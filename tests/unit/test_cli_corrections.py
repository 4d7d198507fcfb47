"""What a cluster has learnt, carried in a file: `fit` and `plan` come to what the operator does."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from tests.support.cluster import MI300X, Cluster, spec_of
from tests.support.command_line import Run, runner
from tests.support.gpu_nodes import amd_node
from tests.support.shapes import CONFIGS
from tonnage.fit.correction_entries import entry_name, write_entry
from tonnage.telemetry.cache import MeasuredCache

Taught = tuple[dict[str, str], int]
LLAMA = str(CONFIGS / "llama-3.1-8b.json")
ASKED = ("--config", LLAMA, "--accelerator", "mi300x", "--max-model-len", "8192", "-tp", "1")


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "fit")


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "plan")


@pytest.fixture(scope="module")
def taught() -> Taught:
    """The entries that a cluster learnt, and the tokens that it predicts with them."""
    return asyncio.run(_learn())


async def _learn() -> Taught:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    tokens = cluster.status()["placements"][0]["kvCacheTokens"]
    cluster.measured["llama"] = MeasuredCache(tokens // 160 * 128)
    await cluster.resync()
    cluster.apply("next", spec_of())
    await cluster.settle()
    (learnt,) = cluster.lessons.known().entries
    predicted = cluster.status("next")["placements"][0]["kvCacheTokens"]
    assert 0 < predicted < tokens
    return {entry_name(learnt.key): write_entry(learnt)}, predicted


def config_map(entries: dict[str, str]) -> str:
    metadata = {"name": "tonnage-corrections", "namespace": "tonnage-system"}
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": entries}
    )


def test_fit_predicts_with_the_config_map_what_the_operator_does(
    fit: Run, taught: Taught, tmp_path: Path
) -> None:
    entries, predicted = taught
    readable = {name: yaml.safe_load(text) for name, text in entries.items()}
    for content in (config_map(entries), yaml.safe_dump(entries), json.dumps(readable)):
        file = tmp_path / "corrections.yaml"
        file.write_text(content)
        _, out, _ = fit(*ASKED, "--corrections", str(file), "-o", "json")
        assert json.loads(out)["kvCacheTokens"] == predicted
        assert json.loads(out)["perGPU"]["correctionGiB"] > 0


def test_a_batch_is_corrected_too(fit: Run, taught: Taught, tmp_path: Path) -> None:
    entries, predicted = taught
    file, cases = tmp_path / "corrections.yaml", tmp_path / "cases.jsonl"
    file.write_text(config_map(entries))
    engine = {"vllmVersion": "0.32.0", "maxModelLen": 8192}
    model = {"config": json.loads(Path(LLAMA).read_text())}
    case = {"id": "a", "vendor": "amd", "accelerator": "mi300x", "model": model, "engine": engine}
    cases.write_text(json.dumps(case) + "\n")
    _, out, _ = fit("--batch", str(cases), "--corrections", str(file))
    assert json.loads(out)["kvCacheTokens"] == predicted
    code, _, err = fit("--tp-batch", str(cases), "--corrections", str(file))
    assert code == 2
    assert "--corrections: what vLLM accepts does not depend on memory" in err


def test_plan_predicts_with_the_config_map_what_the_operator_does(
    plan: Run, taught: Taught, tmp_path: Path
) -> None:
    entries, predicted = taught
    corrections, wanted, nodes = (tmp_path / f"{n}.yaml" for n in ("corrections", "infd", "nodes"))
    corrections.write_text(config_map(entries))
    body = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "InferenceDeployment"}
    body |= {"metadata": {"name": "llama"}, "spec": spec_of()}
    wanted.write_text(yaml.safe_dump(body))
    nodes.write_text(yaml.safe_dump(amd_node("a")))
    given = ("-f", str(wanted), "--nodes", str(nodes), "--corrections", str(corrections))
    code, out, _ = plan(*given, "-o", "json")
    (item,) = json.loads(out)["items"]
    assert (code, item["status"]["placements"][0]["kvCacheTokens"]) == (0, predicted)
    _, out, _ = plan(*given)
    assert "correction" in out


def test_the_table_shows_the_correction(fit: Run, tmp_path: Path) -> None:
    file = tmp_path / "corrections.yaml"
    entry = {
        "model": "LlamaForCausalLM-32x4096-8.0B",
        "weights": "bfloat16",
        "kvCache": "auto",
        "vllmVersion": "0.32.0",
        "accelerator": "mi300x",
        "extraBytes": 3 * 2**30,
    }
    file.write_text(json.dumps({"ours": entry}))
    _, out, _ = fit(*ASKED, "--corrections", str(file))
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("corr")] == [
        ["correction", "3.0"]
    ]
    _, plain, _ = fit(*ASKED)
    assert "correction" not in plain


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param("a: {extraBytes: 1}", "corrections.yaml, key a: entry.model", id="a field"),
        pytest.param(config_map({"a": "words"}), "key a: entry: expected a line", id="words"),
        pytest.param("kind: Secret\ndata: {}", "expected a ConfigMap, or its data", id="a Secret"),
        pytest.param("kind: ConfigMap\ndata: [1]", "data: expected a key", id="a list for data"),
        pytest.param("a: 1\n---\nb: 2", "holds 2 objects, expected one", id="two objects"),
        pytest.param("", "is empty", id="nothing"),
        pytest.param("a: [", "corrections.yaml, line 2", id="no YAML"),
        pytest.param(
            yaml.safe_dump(dict.fromkeys("abcde", 1)), "and 2 more keys", id="many bad keys"
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_key_and_field(
    fit: Run, plan: Run, tmp_path: Path, content: str, want: str
) -> None:
    file = tmp_path / "corrections.yaml"
    file.write_text(content)
    code, _, err = fit(*ASKED, "--corrections", str(file))
    assert code == 2
    assert want in err
