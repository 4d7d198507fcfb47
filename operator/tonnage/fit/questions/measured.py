"""Derives a correction's bytes and key from a measured KV cache."""

from tonnage.catalog.catalog import Catalog
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.calibration.corrections import (
    CorrectionKey,
    ServedModel,
    correction_key,
    served_model,
)
from tonnage.fit.kv_cache.plan import KvCachePlan, plan_kv_cache
from tonnage.fit.model import EngineOptions, MemoryAccount
from tonnage.fit.questions.limits import batch_of
from tonnage.fit.questions.question import FitQuestion, MemoryModel


def served_by(
    memory: MemoryModel, shape: ModelShape, options: EngineOptions, catalog: Catalog
) -> ServedModel:
    """The model that the engine of this memory serves with these options."""
    return served_model(shape, options, memory.release(options, catalog), memory.name)


def key_of(question: FitQuestion, catalog: Catalog) -> CorrectionKey:
    """The correction key of the question's plan."""
    shape, options = question.checkpoint.shape, question.options
    served = served_by(question.memory, shape, options, catalog)
    return correction_key(served, question.accelerator, question.parallelism)


def measured_kv_bytes(tokens: int, question: FitQuestion, catalog: Catalog) -> int:
    """Bytes of one GPU for a KV cache of `tokens` tokens in the layout of the question.

    vLLM reports tokens of whole blocks; the result is the fewest blocks that give these tokens.
    """
    plan = plan_kv_cache(
        question.checkpoint.shape,
        question.parallelism,
        question.options,
        batch_of(question, catalog),
        question.accelerator,
        catalog.release(question.options.release),
    )
    return _fewest_blocks(plan, tokens, question.options.max_model_len) * plan.block_bytes


def missed_bytes(account: MemoryAccount, measured_kv: int) -> int | None:
    """Bytes that the other terms took beyond the calculation, if the KV cache has `measured_kv`.

    None for an impossible measurement: no KV cache, or negative terms. It then belongs to another
    configuration and gives no correction.
    """
    missed = account.kv_cache_bytes + account.correction_bytes - measured_kv
    calculated = account.activation_bytes + account.non_torch_bytes + account.graph_bytes
    return missed if measured_kv > 0 and missed >= -calculated else None


def _fewest_blocks(plan: KvCachePlan, tokens: int, length: int) -> int:
    """The inverse of `plan.tokens`, whose rounding may shift the result by a block."""
    blocks = max(1, -(-tokens * plan.request_blocks(length) // length) - 1)
    while plan.tokens(blocks * plan.block_bytes, length) < tokens:
        blocks += 1
    return blocks
