"""How far the memory of given devices reaches: the longest context, requests at a time, degrees."""

from dataclasses import replace

from tonnage.catalog.catalog import Catalog
from tonnage.fit.batch import Batch, plan_batch
from tonnage.fit.bisection import largest
from tonnage.fit.context import context_limit
from tonnage.fit.model import (
    FitVerdict,
    IllegalParallelism,
    MemoryAccount,
    MemoryFit,
    Parallelism,
)
from tonnage.fit.parallelism import legal_degrees
from tonnage.fit.question import FitQuestion, answer


def judge_degrees(
    question: FitQuestion, max_gpus: int, catalog: Catalog
) -> tuple[tuple[Parallelism, FitVerdict], ...]:
    """The question put to every legal tensor-parallel degree within `max_gpus`, smallest first.

    Degrees that fill whole nodes with the question's pipeline stages; raises what `answer` raises.
    """
    release = catalog.release(question.options.vllm_version)
    stages = question.parallelism.pipeline
    degrees = legal_degrees(
        question.checkpoint.shape, question.options, release, max_gpus // stages
    )
    splits = dict.fromkeys(replace(question.parallelism, tensor=found.tensor) for found in degrees)
    judged = ((split, answer(replace(question, parallelism=split), catalog)) for split in splits)
    return tuple(
        (s, verdict) for s, verdict in judged if not isinstance(verdict, IllegalParallelism)
    )


def smallest_fit(degrees: tuple[tuple[Parallelism, FitVerdict], ...]) -> Parallelism | None:
    """The first of the degrees that fits, None when none does."""
    return next((split for split, found in degrees if isinstance(found, MemoryFit)), None)


def longest_context(question: FitQuestion, catalog: Catalog) -> int:
    """The largest `max_model_len` of which one request fits, 0 when not even one token does.

    At most the model's own maximum; where that is not known, what vLLM assumes or was asked for.
    """
    return largest(
        lambda tokens: isinstance(_alone(question, tokens, catalog), MemoryFit),
        _limit(question, catalog),
    )


def safe_context(question: FitQuestion, catalog: Catalog) -> int:
    """The same, with room to spare for what the calculation does not know exactly."""

    def holds(tokens: int) -> bool:
        verdict = _alone(question, tokens, catalog)
        return isinstance(verdict, MemoryFit) and not verdict.tight

    return largest(holds, _limit(question, catalog))


def concurrent_requests(
    question: FitQuestion, account: MemoryAccount, tokens: int, catalog: Catalog
) -> int:
    """Requests of so many tokens that the account's KV cache holds at a time.

    vLLM serves no more than the batch's `max_num_seqs` of them; raises what `answer` raises.
    """
    verdict = answer(with_context(question, tokens), catalog)
    if isinstance(verdict, IllegalParallelism):
        return 0
    return max(0, account.kv_cache_bytes) // max(1, verdict.account.request_kv_bytes)


def batch_of(question: FitQuestion, catalog: Catalog) -> Batch:
    """The limits of one step: those given, else the release's for the device."""
    return plan_batch(
        question.checkpoint.shape,
        question.options,
        question.parallelism,
        question.accelerator,
        question.device_bytes,
        catalog.release(question.options.vllm_version),
    )


def with_context(question: FitQuestion, tokens: int) -> FitQuestion:
    """The same question for requests of at most so many tokens."""
    return replace(question, options=replace(question.options, max_model_len=tokens))


def _alone(question: FitQuestion, tokens: int, catalog: Catalog) -> FitVerdict:
    """Whether one request of so many tokens fits, without any other."""
    return answer(with_context(replace(question, workload_tokens=0), tokens), catalog)


def _limit(question: FitQuestion, catalog: Catalog) -> int:
    shape, options = question.checkpoint.shape, question.options
    limit = context_limit(shape, options, catalog.release(options.vllm_version))
    return limit or max(shape.max_position_embeddings, options.max_model_len)
