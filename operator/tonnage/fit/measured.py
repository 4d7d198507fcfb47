"""What a measured KV cache says of the other terms of the memory account, and of which key."""

from tonnage.catalog.catalog import Catalog
from tonnage.fit.corrections import CorrectionKey, correction_key, served_model
from tonnage.fit.kv_plan import KvCachePlan, plan_kv_cache
from tonnage.fit.limits import batch_of
from tonnage.fit.model import MemoryAccount
from tonnage.fit.question import FitQuestion


def key_of(question: FitQuestion, catalog: Catalog) -> CorrectionKey:
    """What a start of the question's plan teaches about."""
    release = catalog.release(question.options.vllm_version)
    served = served_model(question.checkpoint.shape, question.options, release)
    return correction_key(served, question.accelerator, question.parallelism)


def measured_kv_bytes(tokens: int, question: FitQuestion, catalog: Catalog) -> int:
    """Memory of one GPU that a KV cache of so many tokens takes, by the layout of the question.

    vLLM counts tokens, from whole blocks; the fewest blocks that give these tokens are taken.
    """
    plan = plan_kv_cache(
        question.checkpoint.shape,
        question.parallelism,
        question.options,
        batch_of(question, catalog),
        question.accelerator,
        catalog.release(question.options.vllm_version),
    )
    return _fewest_blocks(plan, tokens, question.options.max_model_len) * plan.block_bytes


def missed_bytes(account: MemoryAccount, measured_kv: int) -> int | None:
    """Bytes that the other terms took beyond the calculation, where its KV cache turned out to be
    `measured_kv`. None where no start can come to that: terms that take less than nothing, or a KV
    cache that never was. Then something else was measured, and nothing is to be learnt from it.
    """
    missed = account.kv_cache_bytes + account.correction_bytes - measured_kv
    least = account.activation_bytes + account.non_torch_bytes + account.graph_bytes
    return missed if measured_kv > 0 and missed >= -least else None


def _fewest_blocks(plan: KvCachePlan, tokens: int, length: int) -> int:
    """The inverse of `plan.tokens`, whose rounding may shift it by a block."""
    blocks = max(1, -(-tokens * plan.request_blocks(length) // length) - 1)
    while plan.tokens(blocks * plan.block_bytes, length) < tokens:
        blocks += 1
    return blocks
