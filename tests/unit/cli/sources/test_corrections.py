"""Memory corrections in a file: `fit` and `plan` predict the same as the operator."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from tests.support.api_server.live_fake import connect_to
from tests.support.engines.shapes import CONFIGS
from tests.support.fleets.gpu_nodes import amd_node
from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tests.support.pages.command_line import Run, runner
from tonnage.cli.commands import explain as explain_module
from tonnage.cli.commands import plan as plan_module
from tonnage.engines.metrics import MeasuredCache
from tonnage.fit.calibration.entries import entry_name, write_entry
from tonnage.kube.kinds import CONFIG_MAPS
from tonnage.kube.protocol import ForbiddenError

Calibrated = tuple[dict[str, str], int]
LLAMA = str(CONFIGS / "llama-3.1-8b.json")
ASKED = ("--config", LLAMA, "--accelerator", "mi300x", "--max-model-len", "8192", "-tp", "1")


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "fit")


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "plan")


@pytest.fixture(scope="module")
def calibrated() -> Calibrated:
    """The corrections of a cluster, and the tokens that it predicts with them."""
    return asyncio.run(_calibrate())


async def _calibrate() -> Calibrated:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    tokens = cluster.status()["placements"][0]["kvCacheTokens"]
    cluster.measured["llama"] = MeasuredCache(tokens // 160 * 128)
    await cluster.resync()
    cluster.apply("next", spec_of())
    await cluster.settle()
    (correction,) = cluster.correction_registry.known().entries
    predicted = cluster.status("next")["placements"][0]["kvCacheTokens"]
    assert 0 < predicted < tokens
    return {entry_name(correction): write_entry(correction)}, predicted


def config_map(entries: dict[str, str]) -> str:
    metadata = {"name": "tonnage-corrections", "namespace": "tonnage-system"}
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": entries}
    )


def test_fit_predicts_with_the_config_map_what_the_operator_does(
    fit: Run, calibrated: Calibrated, tmp_path: Path
) -> None:
    entries, predicted = calibrated
    readable = {name: yaml.safe_load(text) for name, text in entries.items()}
    for content in (config_map(entries), yaml.safe_dump(entries), json.dumps(readable)):
        file = tmp_path / "corrections.yaml"
        file.write_text(content)
        _, out, _ = fit(*ASKED, "--corrections", str(file), "-o", "json")
        assert json.loads(out)["kvCacheTokens"] == predicted
        assert json.loads(out)["perGPU"]["correctionGiB"] > 0


def test_fit_takes_the_most_careful_correction_of_all_namespaces(
    fit: Run, calibrated: Calibrated, tmp_path: Path
) -> None:
    """The user chose the file and names no namespace."""
    ((name, mine),) = calibrated[0].items()
    theirs = yaml.safe_load(mine) | {"learntOf": "search/llama", "extraBytes": -1}
    file = tmp_path / "corrections.yaml"
    file.write_text(config_map({name: mine, "a": yaml.safe_dump(theirs)}))
    _, out, _ = fit(*ASKED, "--corrections", str(file), "-o", "json")
    assert json.loads(out)["kvCacheTokens"] == calibrated[1]


def test_a_batch_is_corrected_too(fit: Run, calibrated: Calibrated, tmp_path: Path) -> None:
    entries, predicted = calibrated
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


@pytest.fixture
def wanted(tmp_path: Path) -> Path:
    file = tmp_path / "infd.yaml"
    body = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "InferenceDeployment"}
    file.write_text(yaml.safe_dump(body | {"metadata": {"name": "llama"}, "spec": spec_of()}))
    return file


def planned_tokens(plan: Run, *words: str) -> int:
    code, out, _ = plan(*words, "-o", "json")
    assert code == 0
    (item,) = json.loads(out)["items"]
    tokens: int = item["status"]["placements"][0]["kvCacheTokens"]
    return tokens


def test_plan_predicts_with_the_config_map_what_the_operator_does(
    plan: Run, calibrated: Calibrated, wanted: Path, tmp_path: Path
) -> None:
    entries, predicted = calibrated
    corrections, nodes = tmp_path / "corrections.yaml", tmp_path / "nodes.yaml"
    corrections.write_text(config_map(entries))
    nodes.write_text(yaml.safe_dump(amd_node("a")))
    given = ("-f", str(wanted), "--nodes", str(nodes), "--corrections", str(corrections))
    assert planned_tokens(plan, *given, "-n", "chat") == predicted
    _, out, _ = plan(*given, "-n", "chat")
    assert "correction" in out
    assert planned_tokens(plan, *given, "-n", "search") > predicted, (
        "the correction is of namespace chat"
    )


def test_plan_finds_the_config_map_in_a_dump_of_the_cluster(
    plan: Run, calibrated: Calibrated, wanted: Path, tmp_path: Path
) -> None:
    entries, predicted = calibrated
    dump = tmp_path / "cluster.yaml"
    dump.write_text(yaml.safe_dump(amd_node("a")) + "---\n" + config_map(entries))
    given = ("-f", str(wanted), "--nodes", str(dump), "-n", "chat")
    assert planned_tokens(plan, *given) == predicted
    assert planned_tokens(plan, *given, "--operator-namespace", "elsewhere") > predicted


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, calibrated: Calibrated) -> Cluster:
    """A cluster whose operator has corrections."""
    cluster = Cluster(MI300X)
    cluster.api.put(CONFIG_MAPS, yaml.safe_load(config_map(calibrated[0])))
    connect_to(monkeypatch, cluster.api, plan_module)
    connect_to(monkeypatch, cluster.api, explain_module)
    return cluster


def test_plan_and_explain_read_the_corrections_of_the_operator_in_the_cluster(
    plan: Run,
    calibrated: Calibrated,
    wanted: Path,
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert planned_tokens(plan, "-f", str(wanted), "-n", "chat") == calibrated[1]
    assert planned_tokens(plan, "-f", str(wanted), "-n", "search") > calibrated[1]
    cluster.apply("llama", spec_of())
    _, out, _ = runner(capsys, "explain")("llama", "-n", "chat", "-o", "json")
    (placement,) = json.loads(out)["status"]["placements"]
    assert placement["kvCacheTokens"] == calibrated[1]


def test_a_forbidden_config_map_is_a_warning(
    plan: Run, calibrated: Calibrated, wanted: Path, cluster: Cluster
) -> None:
    denied = ForbiddenError("configmaps is forbidden")
    cluster.api.fail_next("get", denied, kind=CONFIG_MAPS)
    code, _, err = plan("-f", str(wanted))
    assert code == 0
    warning = "planning without memory corrections (see --corrections): configmaps is forbidden"
    assert err.strip() == warning


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
        pytest.param(
            "kind: ConfigMap\nmetadata: {name: a}\ndata: [1]",
            "ConfigMap a: data is a list, expected an object",
            id="a list for data",
        ),
        pytest.param("a: 1\n---\nb: 2", "holds 2 objects, expected one", id="two objects"),
        pytest.param("", "is empty", id="nothing"),
        pytest.param("a: [", "corrections.yaml, line 2", id="no YAML"),
        pytest.param(
            yaml.safe_dump(dict.fromkeys("abcde", 1)), "and 2 more keys", id="many bad keys"
        ),
    ],
)
def test_an_invalid_file_is_an_error_with_key_and_field(
    fit: Run, plan: Run, tmp_path: Path, content: str, want: str
) -> None:
    file = tmp_path / "corrections.yaml"
    file.write_text(content)
    code, _, err = fit(*ASKED, "--corrections", str(file))
    assert code == 2
    assert want in err
