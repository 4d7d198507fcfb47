"""Memory of the sampler in the profile run: copies of the logits.

Each of `rows` sequences has one row of logits, whole on every rank: tensor parallelism divides the
head's weights, not the gathered logits.
"""

from typing import Final

from tonnage.catalog.model import Vendor
from tonnage.catalog.vllm.profiling import ProfiledSampler, ProfileRun
from tonnage.checkpoint.model import ModelShape

_HALF: Final = 2
_FLOAT: Final = 4
_INDEX: Final = 8

_LOGITS: Final = _HALF + _FLOAT
"""The head's output and its copy in 32 bits, alive until the sampler draws a token
(vllm/v1/sample/sampler.py forward)."""

_SORT_OUTPUT: Final = _FLOAT + _INDEX
_SORT_ROWS: Final = _INDEX + (_FLOAT + _INDEX)
_SORT_FEW_ROWS: Final = 2 * _INDEX + _FLOAT + (_FLOAT + _INDEX)
_FEW_ROWS: Final = 128
"""torch aten/src/ATen/native/cuda/SortStable.cu: sorted values and int64 indices; for 128 rows or
more the indices to sort and the radix sort's second buffer of keys and indices; for fewer,
row and index of every logit twice, the keys, and the second buffer."""

_FILTERED: Final = 2 * _FLOAT
"""Masked logits and probabilities (FlashInfer top_k_top_p_sampling_from_logits), or probabilities
and the random numbers they are divided by (topk_topp_sampler.py random_sample)."""


_COUNT_BITS: Final = 32 + 1
"""For each sequence and vocabulary entry: its output count, and whether the prompt has it."""


def runs_on_v2(run: ProfileRun, shape: ModelShape) -> bool:
    """Whether model runner V2 runs this model by default."""
    rule = run.runner_v2
    if shape.quantization is not None and not rule.quantized:
        return False
    if rule.every or shape.architecture in rule.architectures:
        return True
    return rule.dense and shape.experts is None and shape.linear_attention is None


def profiled_sampler(run: ProfileRun, vendor: Vendor, shape: ModelShape) -> ProfiledSampler:
    """The sampler that vLLM profiles this model with on this vendor's devices."""
    return run.v2_sampler if runs_on_v2(run, shape) else run.sampler[vendor]


def count_bytes(run: ProfileRun, rows: int, shape: ModelShape) -> int:
    """Bytes of the penalty counters that model runner V2 keeps for `rows` sequences.

    The runner allocates them after it measured the weights, so only releases that measure by free
    memory charge them (vllm/v1/worker/gpu/sample/penalties.py PenaltiesState).
    """
    if not (run.charges_v2_counts and runs_on_v2(run, shape)):
        return 0
    return rows * shape.vocab_size * _COUNT_BITS // 8


def sampling_bytes(
    sampler: ProfiledSampler, rows: int, vocab_size: int, tensor: int, buffer_rows: int
) -> int:
    """Logits and their copies at the sampler's peak; `buffer_rows` as in the catalogue."""
    logits = rows * vocab_size
    if sampler is ProfiledSampler.GUMBEL:
        # The gather step holds the rank's own part, the parts of all ranks, and the reordered copy
        # (vllm/distributed/device_communicators/base_device_communicator.py all_gather).
        return logits * _HALF if tensor == 1 else logits * (2 * _HALF) + logits * _HALF // tensor
    if sampler is ProfiledSampler.GUMBEL_COPY:
        return logits * _LOGITS
    if sampler is ProfiledSampler.FILTER:
        buffer_bytes = min(rows, buffer_rows) * vocab_size * _FLOAT
        return logits * (_LOGITS + _FILTERED) + buffer_bytes
    sort = _SORT_ROWS if rows >= _FEW_ROWS else _SORT_FEW_ROWS
    return logits * (_LOGITS + _SORT_OUTPUT + sort)
