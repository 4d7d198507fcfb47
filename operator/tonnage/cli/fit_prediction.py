"""A judgement as data for programs, in the format of docs/fit.md. GiB appears here only."""

from typing import Any, Final

from tonnage.cli.fit_asking import Asked
from tonnage.cli.fit_judging import Judgement
from tonnage.fit.model import DoesNotFit, MemoryAccount, MemoryFit
from tonnage.fit.question import FitQuestion
from tonnage.placement.messages import format_gib, format_split, tell_shortage

GIB: Final = 2**30

_LARGEST_BLOCK_TOKENS: Final = 256
"""Most tokens of one KV cache block in layers that keep every token: sparse latent attention."""


_NO_DEVICE: Final = "the memory of the device is not known: give accelerator or deviceMemoryBytes"


def as_prediction(identifier: str, asked: Asked, judged: Judgement) -> dict[str, Any]:
    """The answer to a case of a batch."""
    data = as_data(judged) if asked.device_known else _data_without_device(judged)
    return {"id": identifier, **data, "notes": [*asked.notes, *judged.notes]}


def as_data(judged: Judgement) -> dict[str, Any]:
    """Verdict, reason, and the figures where there are any."""
    data: dict[str, Any] = {"verdict": judged.outcome.value, "reason": tell(judged)}
    if judged.refusal is None and isinstance(judged.verdict, MemoryFit):
        data["tight"] = judged.verdict.tight
    if judged.account is not None:
        data |= _figures(judged.question, judged.account)
    return data


def tell(judged: Judgement) -> str:
    """The verdict in one sentence with its numbers."""
    question, verdict = judged.question, judged.verdict
    if judged.refusal is not None:
        return judged.refusal
    if isinstance(verdict, DoesNotFit):
        return tell_shortage(verdict, question.parallelism, question.required_tokens)
    assert isinstance(verdict, MemoryFit)  # an illegal layout has a refusal
    left = format_gib(verdict.account.kv_cache_bytes)
    return (
        f"fits with {format_split(question.parallelism)}: {left} GiB a GPU are left for the KV "
        f"cache, which holds {verdict.account.kv_cache_tokens} tokens; "
        f"{verdict.required_tokens} are asked for"
    )


def token_bytes(account: MemoryAccount, length: int) -> float:
    """What a token costs on one GPU; where that depends on the length, in a request of `length`.

    A request of layers that keep every token is their cost rounded up to whole blocks.
    """
    each = account.kv_bytes_per_token
    beyond = account.request_kv_bytes - each * length
    if 0 <= beyond < each * _LARGEST_BLOCK_TOKENS:
        return float(each)
    return account.request_kv_bytes / length


def _data_without_device(judged: Judgement) -> dict[str, Any]:
    """What can be told of a device whose memory is not known: no verdict but a refusal."""
    data: dict[str, Any] = {"verdict": None, "reason": _NO_DEVICE}
    if judged.refusal is not None:
        data = {"verdict": judged.outcome.value, "reason": judged.refusal}
    if judged.account is not None:
        figures = _figures(judged.question, judged.account)
        data["perGPU"] = {"weightsGiB": figures["perGPU"]["weightsGiB"]}
        data["kvBytesPerTokenPerGPU"] = figures["kvBytesPerTokenPerGPU"]
    return data


def _figures(question: FitQuestion, account: MemoryAccount) -> dict[str, Any]:
    terms = {
        "weightsGiB": account.weights_bytes,
        "kvCacheGiB": account.kv_cache_bytes,
        "activationGiB": account.activation_bytes,
        "nonTorchGiB": account.non_torch_bytes,
        "cudaGraphGiB": account.graph_bytes,
        "budgetGiB": account.budget_bytes,
        **({"correctionGiB": account.correction_bytes} if account.correction_bytes else {}),
    }
    return {
        "perGPU": {name: size / GIB for name, size in terms.items()},
        "kvCacheTokens": account.kv_cache_tokens,
        "marginGiB": account.margin_bytes / GIB,
        "uncertaintyGiB": account.band_bytes / GIB,
        "kvBytesPerTokenPerGPU": token_bytes(account, question.options.max_model_len),
    }
