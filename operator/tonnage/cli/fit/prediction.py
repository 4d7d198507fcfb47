"""Formats a judgement as JSON data, as docs/fit.md describes it. Only this module uses GiB."""

from typing import Any, Final

from tonnage.cli.fit.engine import WORDS, engine_of
from tonnage.cli.fit.judgement import Judgement
from tonnage.fit.messages import format_gib, format_parallelism, format_shortage
from tonnage.fit.model import DoesNotFit, MemoryAccount, MemoryFit, MemoryTerm, StageMemory
from tonnage.fit.questions.question import FitQuestion

GIB: Final = 2**30

_LARGEST_BLOCK_TOKENS: Final = 256
"""Most tokens of a KV cache block in layers that keep every token (sparse latent attention)."""


_NO_DEVICE: Final = "the memory of the device is not known: give accelerator or deviceMemoryBytes"


def as_data(judged: Judgement) -> dict[str, Any]:
    """Verdict, reason, and figures if there are any."""
    data: dict[str, Any] = {"verdict": judged.outcome.value, "reason": format_reason(judged)}
    if judged.refusal is None and isinstance(judged.verdict, MemoryFit):
        data["tight"] = judged.verdict.tight
    if judged.account is not None:
        data |= _figures(judged.question, judged.account)
    return data


def format_reason(judged: Judgement) -> str:
    """The verdict in one sentence with its figures."""
    question, verdict = judged.question, judged.verdict
    if judged.refusal is not None:
        return judged.refusal
    if isinstance(verdict, DoesNotFit):
        return format_shortage(verdict, question.parallelism, question.required_tokens)
    assert isinstance(verdict, MemoryFit)  # an illegal layout has a refusal
    left = format_gib(verdict.account.kv_cache_bytes)
    return (
        f"fits with {format_parallelism(question.parallelism)}: {left} GiB a GPU are left for the "
        f"KV cache, which holds {verdict.account.kv_cache_tokens} tokens; "
        f"{verdict.required_tokens} are asked for"
    )


def token_bytes(account: MemoryAccount, length: int) -> float:
    """KV cache bytes of a token on one GPU; the average in a request of `length` tokens if the cost
    depends on the length.

    With layers that keep every token, a request costs its tokens rounded up to whole blocks.
    """
    per_token = account.kv_bytes_per_token
    rounding = account.request_kv_bytes - per_token * length
    if 0 <= rounding < per_token * _LARGEST_BLOCK_TOKENS:
        return float(per_token)
    return account.request_kv_bytes / length


def data_without_device(judged: Judgement) -> dict[str, Any]:
    """The data for a device of unknown memory: without a verdict unless refused."""
    data: dict[str, Any] = {"verdict": None, "reason": _NO_DEVICE}
    if judged.refusal is not None:
        data = {"verdict": judged.outcome.value, "reason": judged.refusal}
    if judged.account is not None:
        figures = _figures(judged.question, judged.account)
        per_gpu = figures["perGPU"]
        names = ("weightsGiB", "loraGiB")
        data["perGPU"] = {name: per_gpu[name] for name in names if name in per_gpu}
        data["kvBytesPerTokenPerGPU"] = figures["kvBytesPerTokenPerGPU"]
    return data


def _figures(question: FitQuestion, account: MemoryAccount) -> dict[str, Any]:
    counted = WORDS[engine_of(question)].terms
    sizes = {
        "weightsGiB": account.weights_bytes,
        **({"loraGiB": account.lora_bytes} if account.lora_bytes else {}),
        "kvCacheGiB": account.kv_cache_bytes,
        **({"activationGiB": account.activation_bytes} if MemoryTerm.ACTIVATION in counted else {}),
        "nonTorchGiB": account.non_torch_bytes,
        **({"cudaGraphGiB": account.graph_bytes} if MemoryTerm.GRAPHS in counted else {}),
        "budgetGiB": account.budget_bytes,
        **({"correctionGiB": account.correction_bytes} if account.correction_bytes else {}),
    }
    return {
        "perGPU": {name: size / GIB for name, size in sizes.items()},
        "kvCacheTokens": account.kv_cache_tokens,
        "marginGiB": account.margin_bytes / GIB,
        "uncertaintyGiB": account.band_bytes / GIB,
        "kvBytesPerTokenPerGPU": token_bytes(account, question.options.max_model_len),
        **({"stages": list(map(_stage_data, account.stages))} if account.stages else {}),
    }


def _stage_data(stage: StageMemory) -> dict[str, Any]:
    return {
        "layers": stage.layers,
        "weightsGiB": stage.weights_bytes / GIB,
        **({"loraGiB": stage.lora_bytes / GIB} if stage.lora_bytes else {}),
        "kvCacheGiB": stage.kv_cache_bytes / GIB,
        "kvCacheTokens": stage.kv_cache_tokens,
    }
