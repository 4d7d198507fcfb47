"""`tonnage fit --engine sglang`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from accuracy.sglang import sglang_layouts
from tests.support.engines.shapes import CONFIGS
from tests.support.pages.command_line import Run, runner

GIB = 2**30
SMALL = str(CONFIGS / "llama-3.1-8b.json")
LARGE = str(CONFIGS / "llama-3.3-70b.json")
H100 = ("--accelerator", "h100-sxm-80gb")
ON_H100 = ("--config", SMALL, *H100)
ON_MI300X = ("--config", LARGE, "--accelerator", "mi300x")

Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str]) -> Run:
    run = runner(capsys, "fit")
    return lambda *arguments: run("--engine", "sglang", *arguments)


@pytest.fixture
def ask(fit: Run) -> Ask:
    def answer(*arguments: str) -> tuple[int, dict[str, Any]]:
        code, out, err = fit(*arguments, "-o", "json")
        assert err == ""
        return code, json.loads(out)

    return answer


SMALL_LAYOUTS = [
    layout
    for layout in sglang_layouts()
    if layout.model == "meta-llama/Llama-3.1-8B-Instruct"
    and (layout.given_fraction, layout.given_chunk, layout.given_requests) == (None, None, None)
    and layout.given_context is None
]


@pytest.mark.parametrize("layout", SMALL_LAYOUTS, ids=lambda layout: layout.id)
def test_the_fraction_is_the_one_that_sglang_chose(ask: Ask, layout: Any) -> None:
    size, dtype = str(layout.tensor_parallel_size), layout.kv_cache_dtype
    device = ("--accelerator", layout.accelerator, "-tp", size, "--kv-cache-dtype", dtype)
    _, data = ask("--config", SMALL, *device)
    assert data["memFractionStatic"] == pytest.approx(layout.mem_fraction_static, abs=1e-6)
    assert data["maxModelLen"] == layout.context_length


def test_a_correction_of_sglang_takes_its_part(ask: Ask, tmp_path: Path) -> None:
    entry = {"model": "LlamaForCausalLM-32x4096-8.0B", "weights": "bfloat16", "kvCache": "auto"}
    entry |= {"accelerator": "h100-sxm-80gb", "extraBytes": GIB}
    of_vllm, own = tmp_path / "vllm.yaml", tmp_path / "sglang.yaml"
    of_vllm.write_text(yaml.safe_dump({"one": entry | {"vllmVersion": "0.32.0"}}))
    release = {"engine": "sglang", "engineVersion": "0.5.23"}
    own.write_text(yaml.safe_dump({"one": entry | release}))
    plain, other, less = (
        ask(*ON_H100, "-tp", "1", *given)[1]
        for given in ((), ("--corrections", str(of_vllm)), ("--corrections", str(own)))
    )
    assert plain == other
    assert less["perGPU"]["correctionGiB"] == 1
    assert less["kvCacheTokens"] == pytest.approx(plain["kvCacheTokens"] - GIB / 131072, abs=1)


def test_the_terms_add_up_to_the_tokens_of_the_pool(ask: Ask) -> None:
    code, data = ask(*ON_H100, "-tp", "1")
    per_gpu = data["perGPU"]
    assert (code, data["verdict"]) == (0, "fits")
    assert per_gpu.keys() == {"weightsGiB", "kvCacheGiB", "nonTorchGiB", "budgetGiB"}
    terms = per_gpu["weightsGiB"] + per_gpu["kvCacheGiB"] + per_gpu["nonTorchGiB"]
    assert terms == pytest.approx(per_gpu["budgetGiB"])
    pool_bytes = per_gpu["kvCacheGiB"] * GIB
    assert data["kvCacheTokens"] == int(pool_bytes // data["kvBytesPerTokenPerGPU"])
    assert (data["engine"], data["sglangVersion"]) == ("sglang", "0.5.23")
    assert "vllmVersion" not in data


def test_without_a_degree_every_legal_one_is_judged(ask: Ask) -> None:
    code, data = ask(*ON_MI300X)
    verdicts = {one["tensorParallelSize"]: one["verdict"] for one in data["degrees"]}
    assert code == 0
    assert verdicts == {1: "does_not_fit", 2: "fits", 4: "fits", 8: "fits"}
    assert data["tensorParallelSize"] == 2


def test_a_pool_smaller_than_the_context_does_not_fit_though_sglang_starts(ask: Ask) -> None:
    code, data = ask(*ON_MI300X, "-tp", "1")
    assert (code, data["verdict"]) == (3, "does_not_fit")
    assert 0 < data["kvCacheTokens"] < data["maxModelLen"]
    assert data["reason"].startswith("with TP 1 the KV cache of 131072 tokens needs 40.0 GiB a GPU")
    pool = f"with a pool of {data['kvCacheTokens']:,} tokens"
    assert any(
        note.startswith("SGLang itself would start") and pool in note for note in data["notes"]
    )


def test_the_longest_context_fits_and_a_longer_one_does_not(ask: Ask) -> None:
    longest = ask(*ON_MI300X, "-tp", "1")[1]["longestContext"]
    fitting, lacking = (
        ask(*ON_MI300X, "-tp", "1", "--context-length", str(length))
        for length in (longest, longest + 1)
    )
    assert (fitting[0], fitting[1]["kvCacheTokens"] >= longest) == (0, True)
    assert lacking[0] == 3


def test_the_pool_must_hold_all_requests_at_a_time(ask: Ask) -> None:
    tokens = ask(*ON_H100, "-tp", "1", "--context-length", "8k")[1]["kvCacheTokens"]
    size = ("--context-length", "8k", "--input-tokens", "900", "--output-tokens", "100")
    most = tokens // 1000
    assert ask(*ON_H100, "-tp", "1", *size, "--concurrency", str(most))[0] == 0
    code, data = ask(*ON_H100, "-tp", "1", *size, "--concurrency", str(most + 1))
    assert (code, data["concurrentTypicalRequests"]) == (3, most)


def test_weights_beyond_the_fraction_are_named(ask: Ask) -> None:
    code, data = ask("--config", LARGE, *H100, "-tp", "2")
    assert (code, "the weights need 65.7 GiB a GPU" in data["reason"]) == (3, True)
    assert not any("itself would start" in note for note in data["notes"])


def test_flags_of_sglang_count(ask: Ask) -> None:
    flags = ("--mem-fraction-static", "0.5", "--context-length", "8k")
    assert ask(*ON_H100, "-tp", "1", *flags)[1]["memFractionStatic"] == 0.5
    default = ask(*ON_H100, "-tp", "1")[1]
    chunk = ask(*ON_H100, "-tp", "1", "--chunked-prefill-size", "32k")[1]
    assert chunk["memFractionStatic"] < default["memFractionStatic"]
    few = ask(*ON_H100, "-tp", "1", "--max-running-requests", "2")[1]
    assert (default["concurrentRequests"], few["concurrentRequests"]) == (3, 2)


def test_a_fraction_that_leaves_nothing_is_refused(fit: Run) -> None:
    code, _, err = fit(*ON_H100, "-tp", "1", "--mem-fraction-static", "1")
    assert (code, "--mem-fraction-static: '1': expected a share below 1" in err) == (2, True)


def test_sglang_runs_2048_requests_at_a_time_by_default(ask: Ask) -> None:
    small = ("--input-tokens", "50", "--output-tokens", "50")
    data = ask(*ON_H100, "-tp", "1", *small)[1]
    assert data["kvCacheTokens"] > 2048 * 100
    assert data["concurrentTypicalRequests"] == 2048


def test_the_human_view_has_the_flags_of_sglang(fit: Run) -> None:
    out = fit(*ON_H100, "-tp", "1", "--max-running-requests", "2")[1]
    assert "2 of 131,072 tokens (--max-running-requests; the KV cache holds 3)" in out
    lacking = fit(*ON_MI300X, "-tp", "1")[1]
    assert "Does not fit: with TP 1 the KV cache of 131072 tokens needs 40.0 GiB" in lacking
    assert "vLLM" not in lacking.split("note: weights")[0]


def test_a_context_beyond_the_models_own_is_refused(ask: Ask) -> None:
    code, data = ask(*ON_H100, "-tp", "1", "--context-length", "1000k")
    assert (code, data["verdict"]) == (3, "refused")
    assert data["reason"].endswith("SGLang refuses to start")
    assert not any("itself would start" in note for note in data["notes"])


def test_a_size_that_does_not_divide_the_heads_is_refused(fit: Run) -> None:
    code, out, _ = fit(*ON_H100, "-tp", "3")
    assert code == 3
    assert "Refused: 32 attention heads are not divisible by TP 3" in out
    assert "vLLM accepts" not in out
    assert "--allow" not in out


def test_the_cost_has_no_speed(ask: Ask) -> None:
    data = ask(*ON_H100, "-tp", "2")[1]
    assert data["costPerHour"] is not None
    assert (data["tokensPerSecond"], data["costPerMillionTokens"]) == (None, None)
    assert "no speed is estimated for SGLang" in data["notes"]


def test_the_bars_are_those_of_the_terms_that_sglang_has(fit: Run) -> None:
    code, out, _ = fit(*ON_MI300X)
    names = [line.split("  ")[0] for line in out.splitlines() if line.rstrip().endswith("|")]
    assert code == 0
    assert names == ["weights", "non-torch", "KV cache", "left alone", "device"]
    assert "TP 2, SGLang 0.5.23, 131,072 tokens" in out
    assert "--mem-fraction-static: 0.736 (0.866 x 0.85 for aiter)" in out
    assert "vLLM" not in out.split("note:")[0]


def test_accelerators_that_are_not_calculated_are_left_out(fit: Run) -> None:
    code, out, _ = fit("--config", SMALL, "--accelerator", "h100-sxm-80gb,mi300x,l40s")
    assert code == 0
    assert "LlamaForCausalLM, SGLang 0.5.23, 131,072 tokens" in out
    assert "note: l40s: left out, their memory is not calculated for SGLang yet" in out
    code, _, err = fit("--config", SMALL, "--accelerator", "l40s")
    assert (code, "the memory of l40s is not calculated yet" in err) == (2, True)


@pytest.mark.parametrize(
    ("config", "method", "verdict"),
    [
        ("llama-3.1-8b", "auto", "fits"),
        ("llama-3.1-8b", "fp8", "fits"),
        ("llama-3.1-8b", "awq", "refused"),
        ("deepseek-v3", "auto", "fits"),
        ("deepseek-v3", "fp8", "fits"),
        ("deepseek-v3", "nvfp4_online", "refused"),
    ],
)
def test_weights_are_calculated_in_methods_that_are_known(
    ask: Ask, config: str, method: str, verdict: str
) -> None:
    model = ("--config", str(CONFIGS / f"{config}.json"), "--accelerator", "h200-sxm-141gb")
    _, data = ask(*model, "--context-length", "8k", "--quantization", method)
    assert data["verdict"] == verdict


def test_what_a_model_has_that_is_not_calculated_is_named(fit: Run) -> None:
    kimi = str(CONFIGS / "kimi-linear-48b-a3b.json")
    code, _, err = fit("--config", kimi, *H100)
    assert code == 2
    assert "layers of KimiLinearForCausalLM are not calculated yet: DeltaAttention" in err


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        (("--max-model-len", "8k"), "--max-model-len is a flag of vLLM: .* --context-length"),
        (("--max-num-seqs", "8"), "--max-num-seqs .* give --max-running-requests"),
        (("--max-num-batched-tokens", "8k"), "give --chunked-prefill-size"),
        (("--gpu-memory-utilization", "0.9"), "give --mem-fraction-static"),
        (("-dp", "2"), "-dp .--dp-size of SGLang. is not calculated"),
        (("--rope-scaling", "{}"), "--rope-scaling .--json-model-override-args of SGLang."),
        (
            ("--enable-lora",),
            "--enable-lora is not calculated for SGLang yet: leave it out, or give --engine vllm",
        ),
        (("--no-enable-prefix-caching",), "--no-enable-prefix-caching is a flag of vLLM only"),
        (("--vllm-version", "0.32.0"), "--vllm-version is of vLLM"),
        (("--extra-args", "VLLM_USE_V1=0"), "--extra-args is of vLLM"),
        (("--kv-cache-dtype", "fp8"), "KV cache dtype 'fp8' .* expected .*fp8_e4m3"),
    ],
)
def test_flags_of_vllm_are_refused(fit: Run, flags: tuple[str, ...], want: str) -> None:
    code, out, err = fit(*ON_H100, *flags)
    assert (code, out) == (2, "")
    assert re.search(want, err), err


def test_stages_of_two_nodes_are_judged_one_by_one(ask: Ask) -> None:
    deepseek = ("--config", str(CONFIGS / "deepseek-v3.json"), *H100, "--context-length", "32k")
    code, data = ask(*deepseek, "--nodes", "2")
    layout = data["tensorParallelSize"], data["pipelineParallelSize"], data["nodesPerReplica"]
    assert (code, layout) == (0, (8, 2, 2))
    assert [stage["layers"] for stage in data["stages"]] == [30, 31]
    assert data["kvCacheTokens"] == min(stage["kvCacheTokens"] for stage in data["stages"])
    assert data["kvCacheTokens"] > 32000
    assert ask(*deepseek)[0] == 3


def test_stages_that_sglang_does_not_have_are_refused(ask: Ask, tmp_path: Path) -> None:
    config = json.loads(Path(SMALL).read_text()) | {"tie_word_embeddings": True}
    tied = tmp_path / "config.json"
    tied.write_text(json.dumps(config))
    code, data = ask("--config", str(tied), *H100, "-tp", "1", "-pp", "2")
    assert (code, data["verdict"]) == (3, "refused")
    assert data["reason"].startswith("SGLang has no output head for LlamaForCausalLM")


def test_flags_of_sglang_are_refused_for_vllm(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = runner(capsys, "fit")(*ON_H100, "--context-length", "8k")
    assert code == 2
    assert "--context-length is a flag of SGLang: give --max-model-len" in err


def test_a_batch_has_no_engine(fit: Run) -> None:
    code, _, err = fit("--batch", "cases.jsonl")
    assert (code, err.count("--engine: each line of a batch has its own")) == (2, 1)
