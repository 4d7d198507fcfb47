"""Limits of given devices: the longest context, concurrent requests, tensor-parallel sizes."""

from dataclasses import replace

from tonnage.catalog.catalog import Catalog
from tonnage.fit.batch import Batch, plan_batch
from tonnage.fit.bisection import largest
from tonnage.fit.legality.parallelism import legal_degrees
from tonnage.fit.model import (
    FitVerdict,
    IllegalParallelism,
    MemoryAccount,
    MemoryFit,
    Parallelism,
)
from tonnage.fit.questions.question import FitQuestion, answer


def judge_degrees(
    question: FitQuestion, max_gpus: int, catalog: Catalog
) -> tuple[tuple[Parallelism, FitVerdict], ...]:
    """Answers the question for every legal tensor-parallel size within `max_gpus`, smallest first.

    The pipeline stages and data-parallel ranks of the question share `max_gpus`; raises what
    `answer` raises.
    """
    release = catalog.release(question.options.release)
    most = max_gpus // (question.parallelism.pipeline * question.parallelism.data)
    legal = legal_degrees(question.checkpoint.shape, question.options, release, most)
    candidates = dict.fromkeys(
        replace(question.parallelism, tensor=other.tensor) for other in legal
    )
    verdicts = (
        (parallelism, answer(replace(question, parallelism=parallelism), catalog))
        for parallelism in candidates
    )
    return tuple(
        (parallelism, verdict)
        for parallelism, verdict in verdicts
        if not isinstance(verdict, IllegalParallelism)
    )


def smallest_fit(verdicts: tuple[tuple[Parallelism, FitVerdict], ...]) -> Parallelism | None:
    """The first parallelism that fits, None when none does."""
    return next((option for option, verdict in verdicts if isinstance(verdict, MemoryFit)), None)


def longest_context(question: FitQuestion, catalog: Catalog) -> int:
    """The largest `max_model_len` at which one request fits, 0 if not even one token does.

    At most the model's own maximum; if unknown, the larger of vLLM's default and the option.
    """
    return largest(
        lambda tokens: isinstance(_judge_single_request(question, tokens, catalog), MemoryFit),
        _limit(question, catalog),
    )


def safe_context(question: FitQuestion, catalog: Catalog) -> int:
    """The largest `max_model_len` at which one request fits beyond the uncertainty."""

    def holds(tokens: int) -> bool:
        verdict = _judge_single_request(question, tokens, catalog)
        return isinstance(verdict, MemoryFit) and not verdict.tight

    return largest(holds, _limit(question, catalog))


def concurrent_requests(
    question: FitQuestion, account: MemoryAccount, tokens: int, catalog: Catalog
) -> int:
    """Requests of `tokens` tokens that the account's KV cache holds at the same time.

    The engine serves no more than `most_requests` of them; raises what `answer` raises.
    """
    verdict = answer(with_context(question, tokens), catalog)
    if isinstance(verdict, IllegalParallelism):
        return 0
    return max(0, account.kv_cache_bytes) // max(1, verdict.account.request_kv_bytes)


def most_requests(question: FitQuestion, account: MemoryAccount, catalog: Catalog) -> int:
    """Requests that the engine runs at a time, however short they are."""
    return question.memory.most_requests(question, account, catalog)


def batch_of(question: FitQuestion, catalog: Catalog) -> Batch:
    """The limits of one step of vLLM: the options', else the release's for the device."""
    return plan_batch(
        question.checkpoint.shape,
        question.options,
        question.parallelism,
        question.accelerator,
        question.device_bytes,
        catalog.release(question.options.release),
    )


def with_context(question: FitQuestion, tokens: int) -> FitQuestion:
    """The same question for requests of at most `tokens` tokens."""
    return replace(question, options=replace(question.options, max_model_len=tokens))


def _judge_single_request(question: FitQuestion, tokens: int, catalog: Catalog) -> FitVerdict:
    """The verdict for a single request of `tokens` tokens."""
    return answer(with_context(replace(question, workload_tokens=0), tokens), catalog)


def context_limit_of(question: FitQuestion, catalog: Catalog) -> int | None:
    """The longest context that the engine accepts, None without a limit."""
    return question.memory.context_limit(question.checkpoint.shape, question.options, catalog)


def _limit(question: FitQuestion, catalog: Catalog) -> int:
    limit = context_limit_of(question, catalog)
    longest = question.checkpoint.shape.max_position_embeddings
    return limit or max(longest, question.options.max_model_len)
