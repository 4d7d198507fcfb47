"""`tonnage fit --engine auto`: the engine that `spec.engine.type: Auto` takes, and why."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines.shapes import CONFIGS
from tests.support.fleets.gpu_nodes import H100, H200, L40S, MI300X, amd_node, nvidia_node
from tests.support.fleets.placing import CATALOG, decide_on
from tests.support.pages.command_line import Run, runner
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.shape import parse_config_text

SMALL = CONFIGS / "llama-3.1-8b.json"
DEEPSEEK = CONFIGS / "deepseek-v3.json"
DEVICES = {
    "mi300x": amd_node("a", MI300X),
    "h100-sxm-80gb": nvidia_node("b", H100),
    "h200-sxm-141gb": nvidia_node("c", H200),
    "l40s": nvidia_node("d", L40S, gpus=4),
}

Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str]) -> Run:
    run = runner(capsys, "fit")
    return lambda *arguments: run("--engine", "auto", *arguments)


@pytest.fixture
def ask(fit: Run) -> Ask:
    def answer(config: Path, device: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        code, out, err = fit(
            "--config", str(config), "--accelerator", device, *arguments, "-o", "json"
        )
        assert err == ""
        return code, json.loads(out)

    return answer


def of_class(architecture: str, folder: Path) -> Path:
    """The small model under the name of another class."""
    config = json.loads(SMALL.read_text()) | {"architectures": [architecture]}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("config", [SMALL, DEEPSEEK], ids=lambda path: path.stem)
def test_placement_takes_the_same_engine_for_the_same_reason(
    ask: Ask, config: Path, device: str
) -> None:
    data = ask(config, device, "--max-model-len", "8000")[1]
    checkpoint = Checkpoint(parse_config_text(config.read_bytes()))
    decision = decide_on(
        [DEVICES[device]],
        checkpoint,
        engine={"type": "Auto"},
        workload={"maxModelLen": 8000, "concurrency": 1},
    )
    if decision.chosen is None:
        assert data["engine"] is None
    else:
        assert data["engine"] == decision.chosen.engine
        reason = decision.chosen.engine_reason
        assert reason is not None
        assert data["engineReason"][:60] == reason[:60]


def test_a_rule_takes_sglang_and_the_answer_has_its_figures(ask: Ask, capsys: Any) -> None:
    code, data = ask(DEEPSEEK, "mi300x", "--max-model-len", "32k")
    assert (code, data["engine"], data["verdict"]) == (0, "sglang", "fits")
    assert data["engineReason"].endswith("(rule DeepSeekV3InFp8)")
    alone = runner(capsys, "fit")(
        *("--engine", "sglang", "--config", str(DEEPSEEK), "--accelerator", "mi300x"),
        *("--context-length", "32k", "-o", "json"),
    )
    assert json.loads(alone[1]) == {
        name: value for name, value in data.items() if name not in {"engineReason", "engines"}
    }


def test_both_engines_are_in_the_answer(ask: Ask) -> None:
    code, data = ask(SMALL, "mi300x")
    assert (code, data["engine"], data["vllmVersion"]) == (0, "vllm", CATALOG.default_release)
    assert data["engineReason"] == "vllm is the default where no rule names another"
    assert [(one["engine"], one["fits"]) for one in data["engines"]] == [
        ("vllm", True),
        ("sglang", True),
    ]
    assert "KV cache" in data["engines"][1]["reason"]


def test_what_keeps_sglang_away_is_the_reason(ask: Ask) -> None:
    data = ask(SMALL, "l40s")[1]
    assert data["engine"] == "vllm"
    assert data["engineReason"].startswith("sglang: architecture sm_89 is not calculated yet")


def test_a_class_that_vllm_lacks_runs_with_sglang(ask: Ask, tmp_path: Path) -> None:
    code, data = ask(of_class("GigaChat35ForCausalLM", tmp_path), "mi300x")
    assert (code, data["engine"]) == (0, "sglang")
    assert "has no implementation of GigaChat35ForCausalLM" in data["engineReason"]


def test_a_class_that_both_lack_runs_nowhere(ask: Ask, tmp_path: Path) -> None:
    code, data = ask(of_class("UnheardOfForCausalLM", tmp_path), "mi300x")
    assert (code, data["engine"], data["verdict"]) == (3, None, "refused")
    assert "sglang: sglang 0.5.23 has no implementation" in data["engineReason"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--enable-lora",), "--enable-lora is not calculated for SGLang yet"),
        (("--extra-args=--enable-lora",), "--enable-lora is not calculated for SGLang yet"),
        (("--max-lora-rank", "64"), "--max-lora-rank is not calculated for SGLang yet"),
        (("-dp", "2", "-tp", "1"), "-dp (--dp-size of SGLang) is not calculated"),
        (("--rope-scaling", "{}"), "--rope-scaling (--json-model-override-args of SGLang)"),
        (("--quantization", "inc"), "--quantization inc: SGLang has no such method"),
        (("--kv-cache-dtype", "nvfp4"), "KV cache dtype 'nvfp4' is not calculated"),
    ],
)
def test_what_sglang_does_not_serve_is_left_to_vllm(
    ask: Ask, flags: tuple[str, ...], reason: str
) -> None:
    data = ask(SMALL, "mi300x", *flags)[1]
    assert data["engines"][1] == {
        "engine": "sglang",
        "fits": False,
        "reason": data["engines"][1]["reason"],
    }
    assert data["engines"][1]["reason"].startswith(reason)
    assert data["engine"] != "sglang"


def test_adapters_take_vllm_also_where_a_rule_names_sglang(ask: Ask) -> None:
    model = DEEPSEEK, "mi300x", "--max-model-len", "8k"
    assert ask(*model)[1]["engine"] == "sglang"
    code, data = ask(*model, "--max-loras", "2")
    assert (code, data["engine"]) == (0, "vllm")
    assert data["engineReason"].startswith("sglang: --max-loras (--max-loras-per-batch of SGLang)")


def test_each_engine_has_its_own_settings(ask: Ask) -> None:
    shared = ("--max-model-len", "8k", "-tp", "1")
    plain = ask(SMALL, "mi300x", *shared)[1]["engines"]
    of_vllm = ask(SMALL, "mi300x", *shared, "--enforce-eager", "--max-num-seqs", "8")[1]["engines"]
    of_sglang = ask(SMALL, "mi300x", *shared, "--mem-fraction-static", "0.5")[1]["engines"]
    assert (of_vllm[0] != plain[0], of_vllm[1] == plain[1]) == (True, True)
    assert (of_sglang[0] == plain[0], of_sglang[1] != plain[1]) == (True, True)


def test_the_length_is_the_same_for_both(ask: Ask, fit: Run) -> None:
    by_vllm = ask(DEEPSEEK, "mi300x", "--max-model-len", "16k")[1]
    assert by_vllm["maxModelLen"] == 16000
    assert by_vllm == ask(DEEPSEEK, "mi300x", "--context-length", "16k")[1]
    code, _, err = fit(
        *("--config", str(SMALL), "--accelerator", "mi300x"),
        *("--max-model-len", "8k", "--context-length", "16k"),
    )
    assert (code, "--context-length and --max-model-len are the same limit" in err) == (2, True)


@pytest.mark.parametrize(
    "flags",
    [
        ("--max-model-len", "16k"),
        ("--max-model-len", "16k", "-tp", "2"),
        ("--max-model-len", "16k", "-tp", "2", "-pp", "2"),
        ("--max-model-len", "16k", "--kv-cache-dtype", "fp8"),
        ("--max-model-len", "16k", "--quantization", "inc"),
    ],
    ids=" ".join,
)
def test_what_counts_for_both_counts_in_extra_arguments(ask: Ask, flags: tuple[str, ...]) -> None:
    as_flags = ask(SMALL, "mi300x", *flags)
    assert ask(SMALL, "mi300x", "--extra-args", " ".join(flags)) == as_flags


def test_a_flag_counts_before_extra_arguments(ask: Ask) -> None:
    extra = "--extra-args=--max-model-len 8k --enable-lora"
    assert ask(SMALL, "mi300x", "--max-model-len", "16k", extra)[1]["maxModelLen"] == 16000


def test_two_lengths_are_refused_in_extra_arguments_too(fit: Run) -> None:
    code, _, err = fit(
        *("--config", str(SMALL), "--accelerator", "mi300x"),
        *("--context-length", "16k", "--extra-args", "--max-model-len 8k"),
    )
    assert (code, "--context-length and --max-model-len are the same limit" in err) == (2, True)


@pytest.mark.parametrize("engine", ["auto", "vllm"])
@pytest.mark.parametrize("text", ["--context-length 16k", "--mem-fraction-static=0.5"])
def test_flags_of_sglang_are_refused_in_extra_arguments(
    capsys: pytest.CaptureFixture[str], engine: str, text: str
) -> None:
    code, _, err = runner(capsys, "fit")(
        *("--engine", engine, "--config", str(SMALL), "--accelerator", "mi300x"),
        f"--extra-args={text}",
    )
    flag = text.replace("=", " ").split()[0]
    assert code == 2
    assert f"--extra-args: {flag} is a flag of SGLang, and extra arguments are vLLM's" in err


def test_fp8_keys_are_those_of_a_spec(ask: Ask) -> None:
    fp8 = ask(SMALL, "mi300x", "--kv-cache-dtype", "fp8", "-tp", "1")[1]["engines"]
    auto = ask(SMALL, "mi300x", "-tp", "1")[1]["engines"]
    assert [one["fits"] for one in fp8] == [True, True]
    assert all(one["reason"] != other["reason"] for one, other in zip(fp8, auto, strict=True))


def test_a_model_that_is_too_large_for_both_has_both_reasons(ask: Ask) -> None:
    code, data = ask(DEEPSEEK, "h100-sxm-80gb", "-tp", "8")
    assert (code, data["engine"]) == (3, None)
    assert data["engineReason"].startswith("vllm: with TP 8 the weights need")
    assert "; sglang: with TP 8 the weights need" in data["engineReason"]


def test_the_comparison_has_the_engine_of_each_accelerator(fit: Run) -> None:
    code, out, _ = fit(
        *("--config", str(DEEPSEEK), "--accelerator", "mi300x,l40s", "--max-model-len", "8k")
    )
    rows = [line.split()[:3] for line in out.splitlines() if line.startswith(("mi300x", "l40s"))]
    assert code == 0
    assert rows == [["mi300x", "192.0", "SGLang"], ["l40s", "44.4", "-"]]
    assert "mi300x: engine: SGLang; a public benchmark" in out


def test_the_human_view_says_which_and_why(fit: Run) -> None:
    out = fit("--config", str(SMALL), "--accelerator", "mi300x", "-tp", "1")[1]
    assert "  engine: vLLM; vllm is the default where no rule names another\n" in out
    assert "  SGLang: fits with TP 1: " in out


def test_files_on_standard_input_are_read_once(
    ask: Ask, fit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = ask(SMALL, "mi300x")[1]
    with SMALL.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        code, out, _ = fit("--config", "-", "--accelerator", "mi300x", "-o", "json")
    assert (code, json.loads(out)) == (0, want)
