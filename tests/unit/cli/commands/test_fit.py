"""`tonnage fit` with flags, and with batches from programs."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub.errors import OfflineModeIsEnabled
from rich.console import Console

from tests.support.engines.shapes import CONFIGS
from tests.support.pages.command_line import Run, runner
from tonnage.api.model import HuggingFaceSource
from tonnage.checkpoint.hub.errors import HubRequest, translate_errors
from tonnage.checkpoint.hub.reader import HubSettings
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.shape import parse_config_text

LLAMA = str(CONFIGS / "llama-3.3-70b.json")
SMALL = str(CONFIGS / "llama-3.1-8b.json")
LLAMA_CONFIG = json.loads(Path(LLAMA).read_text())

SHORT = ("--max-model-len", "8192")
"""A context that fits one MI300X next to the weights of Llama 70B; its own maximum does not."""


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "fit")


@pytest.fixture
def ask(fit: Run, tmp_path: Path) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """Answers of a batch of cases; a case may be any text."""

    def run(*cases: dict[str, Any] | str, flag: str = "--batch"):
        lines = [one if isinstance(one, str) else json.dumps(one) for one in cases]
        path = tmp_path / "cases.jsonl"
        path.write_text("\n".join(lines) + "\n")
        code, out, _ = fit(flag, str(path), "-o", "jsonl")
        return code, [json.loads(line) for line in out.splitlines()]

    return run


def case(name: str = "a", *, config: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    engine = {"vllmVersion": "0.32.0", "tensorParallelSize": 4, "maxModelLen": 8192}
    return {
        "id": name,
        "vendor": "nvidia",
        "model": {"config": LLAMA_CONFIG if config is None else config},
        "accelerator": "h100-sxm-80gb",
        **fields,
        "engine": {**engine, **fields.get("engine", {})},
    }


# One question


def test_what_fits_says_so_and_ends_with_0(fit: Run) -> None:
    code, out, err = fit("--config", LLAMA, "--accelerator", "mi300x", "-tp", "1", *SHORT)
    assert (code, err) == (0, "")
    for words in ("Fits", "weights", "KV cache", "margin", "longest context", "requests at a time"):
        assert words in out


def test_what_does_not_fit_ends_with_3_and_the_next_step(fit: Run) -> None:
    code, out, _ = fit("--config", LLAMA, "--accelerator", "h100-sxm-80gb", "-tp", "1")
    assert code == 3
    assert "Does not fit" in out
    assert "next step: --" in out


def test_a_layout_that_vllm_refuses_ends_with_3_and_the_rule(fit: Run) -> None:
    code, out, _ = fit("--config", LLAMA, "--accelerator", "h100-sxm-80gb", "-tp", "3")
    assert code == 3
    assert "Refused by vLLM: 64 attention heads are not divisible by TP 3" in out
    assert "next step: --tensor-parallel-size 4" in out


def test_more_memory_is_no_advice_for_a_quantization_that_vllm_refuses(fit: Run) -> None:
    config = str(CONFIGS / "llama-3.1-405b-fp8.json")
    code, out, _ = fit("--config", config, "--accelerator", "mi300x", "--quantization", "gptq")
    assert code == 3
    assert "does not match the checkpoint's, fbgemm_fp8; use quantization auto" in out
    assert "more memory" not in out


def test_without_a_degree_every_legal_one_is_judged(fit: Run) -> None:
    code, out, _ = fit(
        "--config", LLAMA, "--accelerator", "h100-sxm-80gb", "--max-model-len", "8192", "-o", "json"
    )
    data = json.loads(out)
    verdicts = {one["tensorParallelSize"]: one["verdict"] for one in data["degrees"]}
    assert code == 0
    assert list(verdicts) == [1, 2, 4, 8]
    assert verdicts[1] == "does_not_fit"
    assert verdicts[8] == "fits"
    fitting = [degree for degree, verdict in verdicts.items() if verdict == "fits"]
    assert data["tensorParallelSize"] == fitting[0]


def test_the_smallest_degree_that_fits_is_marked(fit: Run) -> None:
    out = fit("--config", LLAMA, "--accelerator", "h100-sxm-80gb", "--max-model-len", "8192")[1]
    marked = [line for line in out.splitlines() if "<- smallest" in line]
    assert len(marked) == 1


def test_a_node_bounds_the_degrees(fit: Run) -> None:
    out = fit("--config", LLAMA, "--accelerator", "mi300x", "--gpus-per-node", "2", "-o", "json")[1]
    assert [one["tensorParallelSize"] for one in json.loads(out)["degrees"]] == [1, 2]


DEEPSEEK = ("--config", str(CONFIGS / "deepseek-v3.json"), "--weights-bytes", "688586727753")
ON_H100 = (*DEEPSEEK, "--accelerator", "h100-sxm-80gb", "--max-model-len", "32768")


def test_a_replica_on_two_nodes_has_a_pipeline_stage_on_each(fit: Run) -> None:
    assert fit(*ON_H100)[0] == 3, "one node is too small"
    code, out, _ = fit(*ON_H100, "--nodes", "2", "-o", "json")
    data = json.loads(out)
    assert (code, data["verdict"]) == (0, "fits")
    parallelism = (data["tensorParallelSize"], data["pipelineParallelSize"])
    assert (*parallelism, data["nodesPerReplica"], data["gpus"]) == (8, 2, 2, 16)
    assert [stage["layers"] for stage in data["stages"]] == [31, 30]
    assert data["kvCacheTokens"] == min(stage["kvCacheTokens"] for stage in data["stages"])
    assert data["tokensPerSecond"] is None, "the network between the nodes is not known"
    assert data["costPerHour"] is not None


def test_the_stages_are_shown(fit: Run) -> None:
    out = fit(*ON_H100, "--nodes", "2")[1]
    assert "TP 8, PP 2 on 2 nodes" in out
    (header,) = (line for line in out.splitlines() if line.startswith("STAGE"))
    assert header.split() == ["STAGE", "LAYERS", "WEIGHTS", "KV", "CACHE", "TOKENS"]
    assert out.count("<- fewest") == 1


def test_data_parallel_ranks_on_two_nodes_share_the_experts(fit: Run) -> None:
    layout = ("--nodes", "2", "-dp", "16", "-ep", "--max-num-batched-tokens", "1024")
    code, out, _ = fit(*ON_H100, *layout, "-o", "json")
    data = json.loads(out)
    assert (code, data["verdict"]) == (0, "fits")
    sizes = ("tensor", "pipeline", "data")
    assert [data[f"{size}ParallelSize"] for size in sizes] == [1, 1, 16]
    assert (data["nodesPerReplica"], data["gpus"]) == (2, 16)
    assert [degree["tensorParallelSize"] for degree in data["degrees"]] == [1], "no GPU is left"
    assert "TP 1, DP 16 on 2 nodes, vLLM" in fit(*ON_H100, *layout)[1]
    code, _, err = fit(*ON_H100, "--nodes", "3", "-dp", "16")
    assert (code, err.count("--data-parallel-size 16: with --nodes 3")) == (2, 1)


def test_stages_that_nodes_cannot_share_are_refused(fit: Run) -> None:
    code, _, err = fit(*ON_H100, "--nodes", "2", "-pp", "3")
    assert code == 2
    assert "--pipeline-parallel-size 3: with --nodes 2, expected a multiple of 2" in err


@pytest.mark.parametrize(
    ("form", "read"),
    [("json", json.loads), ("jsonl", json.loads), ("yaml", yaml.safe_load)],
)
def test_programs_read_one_object(fit: Run, form: str, read: Callable[[str], Any]) -> None:
    data = read(
        fit("--config", LLAMA, "--accelerator", "mi300x", "-tp", "1", *SHORT, "-o", form)[1]
    )
    assert data["verdict"] == "fits"
    assert data["perGPU"]["weightsGiB"] == pytest.approx(131.4, abs=0.5)
    assert data["nextSteps"] == []


def test_the_models_own_maximum_counts_without_a_length_and_has_a_note(fit: Run) -> None:
    out = fit("--config", LLAMA, "--accelerator", "mi300x", "-tp", "2", "-o", "json")[1]
    data = json.loads(out)
    assert data["maxModelLen"] == 131072
    assert any("--max-model-len" in note for note in data["notes"])


def test_the_config_can_come_from_standard_input(fit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(Path(LLAMA).read_bytes()))
    monkeypatch.setattr("sys.stdin", stream)
    assert fit("--config", "-", "--accelerator", "mi300x", "-tp", "1", *SHORT)[0] == 0


def test_the_given_device_memory_overrides_the_catalogue(fit: Run) -> None:
    arguments = ("--config", LLAMA, "--accelerator", "mi300x", "-tp", "1", *SHORT, "-o", "json")
    known = json.loads(fit(*arguments)[1])
    less = json.loads(fit(*arguments, "--device-memory", "150.5GiB")[1])
    assert less["perGPU"]["budgetGiB"] < known["perGPU"]["budgetGiB"]
    assert less["perGPU"]["weightsGiB"] == known["perGPU"]["weightsGiB"]


@pytest.mark.parametrize("flag", ["--device-memory", "--weights-bytes"])
def test_gigabytes_are_not_gibibytes(fit: Run, flag: str) -> None:
    arguments = ("--config", LLAMA, "--accelerator", "mi300x", "-tp", "1", *SHORT, "-o", "json")
    decimal, binary = (json.loads(fit(*arguments, flag, f"150{unit}")[1]) for unit in ("GB", "GiB"))
    assert decimal["perGPU"] != binary["perGPU"]
    code, out, err = fit(*arguments, flag, "150G")
    assert (code, out) == (2, "")
    assert f"{flag}: '150G' is ambiguous: expected 150GB" in err


def test_a_card_outside_the_catalogue_needs_vendor_and_memory(fit: Run) -> None:
    arguments = ("--config", LLAMA, "--vendor", "nvidia", "-tp", "8", "--max-model-len", "4k")
    code, _, err = fit(*arguments)
    assert (code, "--device-memory is missing" in err) == (2, True)
    assert fit(*arguments, "--device-memory", "44.4GiB")[0] == 0


def test_the_index_gives_the_size_of_the_weights(fit: Run, tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 183439636890}, "weight_map": {}}))
    arguments = ("--config", LLAMA, "--accelerator", "mi300x", "-tp", "4", "-o", "json")
    stated = json.loads(fit(*arguments, "--safetensors-index", str(index))[1])
    given = json.loads(fit(*arguments, "--weights-bytes", str(183439636890))[1])
    computed = json.loads(fit(*arguments)[1])
    assert stated["perGPU"] == given["perGPU"]
    assert stated["perGPU"]["weightsGiB"] > 1.25 * computed["perGPU"]["weightsGiB"]


def test_the_workload_adds_to_the_longest_request(fit: Run) -> None:
    arguments = ("--config", LLAMA, "--accelerator", "mi300x", "-tp", "1", *SHORT, "-o", "json")
    alone = json.loads(fit(*arguments)[1])
    busy = json.loads(fit(*arguments, "--concurrency", "30", "--input-tokens", "2000")[1])
    assert busy["marginGiB"] < alone["marginGiB"]
    assert busy["concurrentTypicalRequests"] > busy["concurrentRequests"] > 0


def test_an_overridden_rule_has_a_note(fit: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**LLAMA_CONFIG, "architectures": ["AcmeForCausalLM"]}))
    arguments = ("--config", str(config), "--accelerator", "mi300x", "-tp", "1", *SHORT)
    code, out, _ = fit(*arguments)
    assert code == 3
    assert "Refused: " in out
    assert "--allow ArchitectureUnknown" in out
    code, out, _ = fit(*arguments, "--allow", "ArchitectureUnknown")
    assert code == 0
    assert "(rule ArchitectureUnknown)" in out


def test_a_rule_that_does_not_exist_overrides_nothing(fit: Run) -> None:
    arguments = ("--config", LLAMA, "--accelerator", "mi300x", "--allow", "ArchitectureUnkown")
    code, _, err = fit(*arguments)
    assert (code, "did you mean: ArchitectureUnknown" in err) == (2, True)


def test_the_settings_that_the_server_needs_are_shown(fit: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps({**LLAMA_CONFIG, "quantization_config": {"quant_method": "mxfp8"}})
    )
    arguments = ("--config", str(config), "--accelerator", "mi300x", "-tp", "1", *SHORT)
    settings = json.loads(fit(*arguments, "-o", "json")[1])["settings"]
    assert settings["env"]
    for name, value in settings["env"].items():
        assert f"start with: {name}={value}" in fit(*arguments)[1]


def test_an_unknown_release_is_planned_like_another_with_a_note(fit: Run) -> None:
    arguments = ("--config", LLAMA, "--accelerator", "mi300x", "-tp", "1", *SHORT, "--vllm-version")
    assert "planned like" in fit(*arguments, "0.99.0")[1]
    assert "by its day" in fit(*arguments, "2026-08-06")[1]


def test_bars_are_plain_in_files_and_blocks_on_terminals(
    fit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--config", LLAMA, "--accelerator", "mi300x", "-tp", "1", *SHORT)
    assert fit(*arguments)[1].isascii()
    terminal = Console(force_terminal=True, width=100, highlight=False, no_color=False)
    monkeypatch.setattr("tonnage.cli.fit.answer.make_console", lambda: terminal)
    out = fit(*arguments)[1]
    assert "█" in out
    plain = Console(force_terminal=True, width=60, highlight=False, no_color=True)
    monkeypatch.setattr("tonnage.cli.fit.answer.make_console", lambda: plain)
    bars = [line for line in fit(*arguments)[1].splitlines() if "|" in line]
    assert bars
    assert max(map(len, bars)) <= 60


BAD: list[tuple[list[str], str]] = [
    (["--config", LLAMA, "--accelerator", "h100-smx"], "did you mean: h100-sxm-80gb"),
    (["--config", LLAMA, "--accelerator", "h100,mi300"], "did you mean: mi300x"),
    (["--config", LLAMA, "--accelerator", "mi300a"], "--device-memory is missing"),
    (
        ["--config", LLAMA, "--accelerator", "H200", "--device-memory", "140GiB"],
        "--device-memory is of one card: expected one of h200-sxm-141gb, h200-nvl-141gb",
    ),
    (["acme", "--config", LLAMA, "--accelerator", "mi300x"], "not allowed with argument"),
    ([LLAMA, "--accelerator", "mi300x"], "is a file or folder, expected a repository"),
    (["not a repository", "--accelerator", "mi300x"], "MODEL 'not a repository'"),
    (["acme/llama", "--revision", "", "--accelerator", "mi300x"], "--revision ''"),
    (["acme/llama", "--weights-bytes", "1GiB", "--accelerator", "mi300x"], "--weights-bytes"),
    (["--config", LLAMA], "give --accelerator"),
    (["--config", "", "--accelerator", "mi300x"], "'' is not the name of a file"),
    (["--config", "/nowhere", "--accelerator", "mi300x"], "/nowhere cannot be read"),
    (["--config", LLAMA, "--accelerator", "mi300x", "--vllm-version", "new"], "'new'"),
    (["--config", LLAMA, "--accelerator", "mi300x", "--max-num-seqs", "0"], "--max-num-seqs"),
    (["--config", LLAMA, "--accelerator", "mi300x", "--kv-cache-dtype", "fp7"], "'fp7'"),
    (["--config", LLAMA, "--accelerator", "mi300x", "--gpu-memory-utilization", "1.1"], "'1.1'"),
    (
        ["--config", LLAMA, "--accelerator", "mi300x", "--mm-encoder-tp-mode", "row"],
        "'row': expected one of weights, data",
    ),
    (["--config", LLAMA, "--accelerator", "mi300x", "--max-num-seqs", "-5"], "1 to 2**53"),
    (["--batch", LLAMA, "-o", "table"], "answered as jsonl"),
    ([], "--config"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_an_invalid_input_ends_with_2_and_its_name(
    fit: Run, arguments: list[str], words: str
) -> None:
    code, out, err = fit(*arguments)
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": "many"}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"architectures": ["BertModel"]}, "BertModel"),
    ],
)
def test_an_invalid_field_of_the_config_is_named(
    fit: Run, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_CONFIG, **change}))
    code, _, err = fit("--config", str(path), "--accelerator", "mi300x")
    assert code == 2
    assert words in err
    assert str(path) in err


# Several accelerators

COMPARED = ("--config", SMALL, "--accelerator", "mi300x,H100", "--accelerator", "L4", *SHORT)


def test_accelerators_are_compared_side_by_side(fit: Run) -> None:
    code, out, err = fit(*COMPARED)
    assert (code, err) == (0, "")
    title, heading, *lines = out.splitlines()
    assert title == "LlamaForCausalLM, vLLM 0.32.0, 8,192 tokens"
    columns = "ACCELERATOR GiB VERDICT TP GPUS TOKENS REQUESTS TOKENS/S $/H $/1M TOKENS"
    assert heading.split() == columns.split()
    rows = {line.split()[0]: line.split() for line in lines[:5]}
    assert list(rows) == ["mi300x", "h100-sxm-80gb", "h100-pcie-80gb", "h100-nvl-94gb", "l4"]
    assert rows["mi300x"][1:5] == ["192.0", "fits", "1", "1"]
    assert rows["mi300x"][-2] == "1.99"
    assert rows["l4"][-2:] == ["-", "-"], "the price list has no L4"
    assert "  cost: of one replica, by list prices of 2026-05-18 to 2026-09-25" in lines


def test_json_has_an_item_for_each_of_several_accelerators(fit: Run) -> None:
    items = json.loads(fit(*COMPARED, "-o", "json")[1])["items"]
    lines = [json.loads(line) for line in fit(*COMPARED, "-o", "jsonl")[1].splitlines()]
    assert items == lines
    alone = json.loads(fit(*COMPARED[:2], "--accelerator", "mi300x", *SHORT, "-o", "json")[1])
    assert items[0] == alone, "one accelerator has the same fields"
    assert alone["gpus"] == alone["tensorParallelSize"] == 1
    assert (alone["costPerHour"], alone["priceSource"]) == ("1.99", "list price of 2026-05-18")
    speed, cost = alone["tokensPerSecond"], float(alone["costPerMillionTokens"])
    assert cost == pytest.approx(1.99 * 1e6 / (speed * 3600), abs=0.01)
    assert (items[4]["costPerHour"], items[4]["costPerMillionTokens"]) == (None, None)
    assert items[4]["tokensPerSecond"] > 0


def test_a_replica_costs_all_of_its_gpus(fit: Run) -> None:
    arguments = ("--config", LLAMA, "--accelerator", "h100-sxm", *SHORT, "-o", "json")
    answer = json.loads(fit(*arguments, "-tp", "4")[1])
    assert (answer["gpus"], answer["costPerHour"]) == (4, "11.96")


def test_the_workload_decides_the_speed_that_the_cost_is_for(fit: Run) -> None:
    arguments = (*COMPARED[:2], "--accelerator", "mi300x", *SHORT, "-o", "json")
    full = json.loads(fit(*arguments)[1])
    quiet = json.loads(fit(*arguments, "--concurrency", "4")[1])
    assert quiet["estimatedRequests"] == 4
    assert full["estimatedRequests"] > 100
    assert float(quiet["costPerMillionTokens"]) > float(full["costPerMillionTokens"])


def test_one_accelerator_on_which_the_model_fits_is_enough(fit: Run) -> None:
    arguments = ("--config", LLAMA, *SHORT, "-tp", "1", "--accelerator")
    code, out, _ = fit(*arguments, "l4,mi300x")
    assert code == 0
    assert "  l4: Does not fit: with TP 1 the weights need" in out
    code, out, _ = fit(*arguments, "l4,h100-sxm")
    assert code == 3
    assert "  l4: next step: --tensor-parallel-size 8" in out


def test_a_card_of_a_family_that_cannot_be_calculated_is_left_out_with_a_note(fit: Run) -> None:
    items = json.loads(fit(*COMPARED[:2], "--accelerator", "AMD", *SHORT, "-o", "json")[1])["items"]
    assert len(items) > 5
    assert "mi300a" not in [item["accelerator"] for item in items]
    assert "mi300a, mi350p: left out, their memory is not known" in items[0]["notes"]


# A repository


def test_a_model_on_the_hub_is_given_by_its_repository(
    fit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str, str | None]] = []

    def fetch(source: HuggingFaceSource, token: str | None, _: HubSettings) -> Checkpoint:
        asked.append((source.repo, source.revision, token))
        return Checkpoint(parse_config_text(Path(SMALL).read_bytes()))

    monkeypatch.setattr("tonnage.cli.sources.repository.fetch_checkpoint", fetch)
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    arguments = ("--accelerator", "mi300x", *SHORT, "-o", "json")
    code, out, _ = fit("meta-llama/Llama-3.1-8B", *arguments, "--revision", "v2")
    assert (code, asked) == (0, [("meta-llama/Llama-3.1-8B", "v2", "hf_mine")])
    assert json.loads(out) == json.loads(fit("--config", SMALL, *arguments)[1])


def test_a_refusal_of_the_hub_says_what_to_change_on_the_command_line(
    fit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(source: HuggingFaceSource, _: str | None, settings: HubSettings) -> Checkpoint:
        request = HubRequest(source, "https://hub", 1.0, has_token=False, inputs=settings.inputs)
        with translate_errors(request):
            raise OfflineModeIsEnabled
        raise AssertionError

    monkeypatch.setattr("tonnage.cli.sources.repository.fetch_checkpoint", fetch)
    code, out, err = fit("acme/llama", "--accelerator", "mi300x")
    assert (code, out) == (2, "")
    assert err.startswith("tonnage fit: repository acme/llama at revision main cannot be read")
    assert "give its config.json by --config" in err
    assert "spec." not in err


# Many questions


def test_flags_that_a_batch_does_not_have_are_named_as_the_user_typed_them(
    fit: Run, tmp_path: Path
) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(case()) + "\n")
    typed = ("-tp", "2", "--max-model-len=8k", "--accel", "mi300x", "--no-enable-prefix-caching")
    code, out, err = fit("--batch", str(path), *typed, "-O", "0")
    assert (code, out) == (2, "")
    flags = "-tp, --max-model-len, --accel, --no-enable-prefix-caching, -O"
    assert err == f"tonnage fit: {flags}: each line of a batch has its own; leave this out\n"
    assert fit("--batch", str(path), "--output=jsonl")[0] == 0
    assert fit("--batch", str(path), "-ojsonl")[0] == 0


def test_a_batch_is_answered_in_its_order(ask: Any) -> None:
    code, answers = ask(case("b"), case("a", engine={"tensorParallelSize": 1}))
    assert code == 0
    assert [(one["id"], one["verdict"]) for one in answers] == [
        ("b", "fits"),
        ("a", "does_not_fit"),
    ]
    assert answers[1]["perGPU"]["kvCacheGiB"] < 0
    assert set(answers[0]["perGPU"]) == {
        "weightsGiB", "kvCacheGiB", "activationGiB", "nonTorchGiB", "cudaGraphGiB", "budgetGiB",
    }  # fmt: skip
    assert answers[0]["kvBytesPerTokenPerGPU"] == 80 * 2 * 2 * 128 * 2


def test_a_case_names_an_accelerator_as_flags_do(ask: Any) -> None:
    _, answers = ask(case("a"), case("a", accelerator="H100 SXM"))
    assert answers[0] == answers[1]


def test_a_batch_reports_the_number_of_invalid_lines(fit: Run, tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text("{}\n" + json.dumps(case()) + "\nnot JSON\n")
    code, out, err = fit("--batch", str(path))
    assert (code, len(out.splitlines())) == (0, 3)
    assert err == "tonnage fit: 2 lines could not be used: see `error`\n"


def test_what_vllm_refuses_is_refused(ask: Any) -> None:
    _, [answer] = ask(case(engine={"tensorParallelSize": 3}))
    assert (answer["verdict"], "64 attention heads" in answer["reason"]) == ("refused", True)


def test_a_rule_that_a_user_may_override_is_a_note_in_a_batch(ask: Any) -> None:
    config = {**LLAMA_CONFIG, "architectures": ["AcmeForCausalLM"]}
    _, [answer] = ask(case(config=config))
    assert answer["verdict"] == "fits"
    assert any("ArchitectureUnknown" in note for note in answer["notes"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "is not JSON"),
        ("[1]", "the line is"),
        ('{"id": "a"}', "model is missing"),
        (json.dumps(case(engine={"maxModelLen": -1})), "engine.maxModelLen is '-1'"),
        (json.dumps(case(engine={"kvCacheDtype": "fp7"})), "engine.kvCacheDtype is 'fp7'"),
        (json.dumps(case(engine={"extraArgs": "--max-num-seqs x"})), "engine.extraArgs"),
        (json.dumps(case(engine={"extraArgs": '"--max'})), "No closing quotation"),
        (json.dumps(case(accelerator="mi30x")), "did you mean"),
        (json.dumps(case(accelerator="H100")), "expected one of h100-sxm-80gb"),
        (json.dumps(case(accelerator=None, vendor=None)), "accelerator and vendor are missing"),
        (json.dumps(case(vendor="acme")), "vendor is 'acme'"),
        (json.dumps(case(config={})), "model.config: architectures is missing"),
        (json.dumps(case(deviceMemoryBytes=True)), "deviceMemoryBytes"),
    ],
)
def test_an_invalid_line_names_line_and_field_and_stops_no_other(
    ask: Any, line: str, words: str
) -> None:
    code, answers = ask(case("first"), line, case("last"))
    assert code == 0, "an error is an answer"
    assert [one.get("verdict") for one in answers] == ["fits", None, "fits"]
    assert answers[1]["error"].startswith("line 2: ")
    assert words in answers[1]["error"]


def test_an_unlisted_card_with_memory_gets_a_verdict(ask: Any) -> None:
    _, [answer] = ask(case(accelerator=None, deviceMemoryBytes=80 * 2**30))
    assert answer["verdict"] == "fits"


def test_a_card_without_memory_gets_weights_and_rate_and_no_verdict(ask: Any) -> None:
    _, [answer] = ask(case(accelerator=None))
    assert answer["verdict"] is None
    assert set(answer["perGPU"]) == {"weightsGiB"}
    assert answer["kvBytesPerTokenPerGPU"] == 80 * 2 * 2 * 128 * 2


def test_unknown_fields_are_ignored_with_a_note(ask: Any) -> None:
    _, [answer] = ask(case(engine={"maxModelLength": 1}, _remark="read in a log"))
    assert "engine.maxModelLength is not known and was ignored" in answer["notes"]
    assert not any("_remark" in note for note in answer["notes"])


@pytest.mark.parametrize(
    ("extra", "same"),
    [
        (["--max_num_seqs=64"], {"maxNumSeqs": 64}),
        ("--max-num-batched-tokens 2k --tensor-parallel-size 8", {"maxNumBatchedTokens": 2000}),
        (["--enforce-eager", "-O3"], {"enforceEager": True}),
        (["--compilation-config", '{"cudagraph_mode": "NONE"}'], {"enforceEager": True}),
        (["--load-format", "dummy", "VLLM_ROCM_USE_AITER=1"], {}),
    ],
)
def test_extra_arguments_count_as_fields_do(ask: Any, extra: Any, same: dict[str, Any]) -> None:
    _, [written, stated] = ask(case(engine={"extraArgs": extra}), case(engine=same))
    assert written == stated


def test_a_gguf_file_is_recognised_by_the_method_and_counts_by_its_size(ask: Any) -> None:
    config = {key: value for key, value in LLAMA_CONFIG.items() if key != "quantization_config"}
    asked = case(config=config, engine={"quantization": "gguf", "vllmVersion": "0.11.0"})
    asked["model"]["checkpointBytes"] = 42 * 2**30
    _, [answer] = ask(asked)
    assert answer["verdict"] == "fits"
    assert answer["perGPU"]["weightsGiB"] == pytest.approx(42 / 4, rel=0.02)
    assert not any("16-bit" in note for note in answer["notes"])
    _, [unsized] = ask({**asked, "model": {"config": config}})
    assert any("weights count as 16-bit" in note for note in unsized["notes"])


def test_a_layout_is_legal_or_not_with_a_reason(ask: Any) -> None:
    legal = case("yes", engine={"tensorParallelSize": 8, "vllmVersion": "vllm/vllm-openai:v0.22.0"})
    code, answers = ask(legal, case("no", engine={"tensorParallelSize": 3}), flag="--tp-batch")
    assert code == 0
    assert [(one["id"], one["legal"]) for one in answers] == [("yes", True), ("no", False)]
    assert "AttentionHeads" in answers[1]["reason"]


def test_many_cases_are_answered_in_order(ask: Any) -> None:
    code, answers = ask(*(case(str(number)) for number in range(100)))
    assert code == 0
    assert [one["id"] for one in answers] == [str(number) for number in range(100)]
