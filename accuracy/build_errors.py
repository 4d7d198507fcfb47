"""Predictions against what vLLM's own classes build."""

from collections.abc import Iterable

from accuracy.asking import Answer, figure
from accuracy.measures import Error, relative_error
from accuracy.records import GIB, Build, StageBuild

Pair = tuple[Build, Answer]


def acceptance_errors(pairs: Iterable[Pair]) -> list[Error]:
    """Whether a layout is accepted or refused as vLLM does it."""
    return [Error(record.id, float(not _agrees(record, answer))) for record, answer in pairs]


def weights_errors(pairs: Iterable[Pair], quantized: bool) -> list[Error]:
    """Relative errors of the weights of rank 0, of quantised models or of the others.

    Without MXFP4, which is repacked after loading: the constructor's size is not what stays.
    """
    errors = []
    for record, answer in pairs:
        repacked = "mxfp4" in (record.quantization or "")
        if record.loaded_bytes and not repacked and bool(record.quantization) == quantized:
            predicted = figure(answer, "weightsGiB")
            errors.append(Error(record.id, relative_error(predicted, record.loaded_bytes / GIB)))
    return errors


def stage_errors(pairs: Iterable[tuple[StageBuild, Answer]], *, staged: bool) -> list[Error]:
    """The largest relative error of the weights of any pipeline stage, or those of a data-parallel
    rank."""
    return [
        Error(
            record.id,
            max(
                relative_error(predicted, exact / GIB)
                for predicted, exact in zip(_weights(answer), record.stage_bytes, strict=True)
            ),
        )
        for record, answer in pairs
        if (record.pipeline_parallel_size > 1) == staged
    ]


def _weights(answer: Answer) -> list[float | None]:
    stages = answer.get("stages")
    if stages:
        return [stage["weightsGiB"] for stage in stages]
    return [figure(answer, "weightsGiB")]


def kv_rate_errors(pairs: Iterable[Pair]) -> list[Error]:
    """Relative errors of the bytes a token costs where every layer keeps every token."""
    return [
        Error(record.id, relative_error(figure(answer, "kvBytesPerTokenPerGPU"), exact))
        for record, answer in pairs
        if (exact := record.kv_bytes_per_token)
    ]


def kv_tokens_errors(pairs: Iterable[Pair], hybrid: bool) -> list[Error]:
    """Relative errors of the tokens that the cache holds, of hybrids or of the others."""
    return [
        Error(record.id, relative_error(figure(answer, "kvCacheTokens"), exact))
        for record, answer in pairs
        if (exact := record.kv_cache_tokens) and (record.kv_bytes_per_token is None) == hybrid
    ]


def _agrees(record: Build, answer: Answer) -> bool:
    refused = answer.get("verdict") == "refused"
    return "error" not in answer and refused != record.accepted
