"""The activation peak: what vLLM's profile run finds to be alive at once, beside the weights.

The run encodes images where there are any, passes max_num_batched_tokens tokens through the model
and samples for max_num_seqs sequences (vllm/v1/worker/gpu_model_runner.py profile_run). What
survives one stage adds to the next; of the stages themselves the largest counts.
"""

from dataclasses import dataclass
from typing import Final

from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Accelerator, Vendor
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.batch import Batch
from tonnage.fit.encoding import encoder_memory
from tonnage.fit.layer_peak import expert_width, layer_width
from tonnage.fit.matrix import Split
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.precision import COMPUTE_BYTES
from tonnage.fit.sampling import count_bytes, profiled_sampler, sampling_bytes

_BLOCK_TOKENS: Final = 16
_LATENT_CONTEXT: Final = 65536
"""Tokens whose keys and values latent attention expands at a time, at most
(vllm/model_executor/layers/attention/mla_attention.py determine_chunked_prefill_workspace_size)."""


@dataclass(frozen=True, slots=True)
class ActivationPeak:
    """The peak in bytes, and how much of it is there because images or sound are encoded."""

    total_bytes: int
    encoder_bytes: int


def activation_peak(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    batch: Batch,
    accelerator: Accelerator,
    release: EngineRelease,
) -> ActivationPeak:
    """The peak of the profile run on the fullest GPU."""
    run = release.profile_run
    split = Split(tensor=parallelism.tensor, expert_parallel=options.enable_expert_parallel)
    encoder = encoder_memory(shape, batch, options, run)
    experts = _expert_bytes(shape, split, batch, run.expert_chunk_tokens)
    layer = experts + max(
        batch.max_num_batched_tokens * layer_width(shape, split) * COMPUTE_BYTES,
        _latent_context_bytes(shape, split, options, batch),
    )
    rows = batch.max_num_seqs
    if release.whole_prefill is not None and encoder.items:
        # V0 profiles as many sequences as a step has room for images.
        rows = min(rows, encoder.items)
    sampled = _sampling_bytes(shape, parallelism, batch, rows, accelerator.vendor, release)
    if run.keeps_expert_workspace:
        sampled += experts
    language = max(layer, sampled)
    total = max(encoder.peak_bytes, encoder.kept_bytes + language)
    blas = release.libraries.blas_bytes
    throughout = blas.get(accelerator.arch, blas["default"])
    throughout += count_bytes(run, batch.max_num_seqs, shape)
    return ActivationPeak(throughout + total, total - language)


def _sampling_bytes(
    shape: ModelShape,
    parallelism: Parallelism,
    batch: Batch,
    rows: int,
    vendor: Vendor,
    release: EngineRelease,
) -> int:
    """The sampler's peak for `rows` sequences, on top of the step's hidden states.

    Those of the last token of each sequence are picked and replaced by random ones
    (vllm/v1/worker/gpu_model_runner.py _dummy_sampler_run).
    """
    hidden = (batch.max_num_batched_tokens + 2 * rows) * shape.hidden_size * COMPUTE_BYTES
    sampler = profiled_sampler(release.profile_run, vendor, shape)
    buffer_rows = release.libraries.sampler_rows
    return hidden + sampling_bytes(sampler, rows, shape.vocab_size, parallelism.tensor, buffer_rows)


def _expert_bytes(shape: ModelShape, split: Split, batch: Batch, chunk_tokens: int | None) -> int:
    """The experts' workspace for a step, or for a chunk of it where it is worked on in chunks."""
    tokens = batch.max_num_batched_tokens
    if chunk_tokens is not None:
        tokens = min(tokens, chunk_tokens)
    return tokens * expert_width(shape, split) * COMPUTE_BYTES


def _latent_context_bytes(
    shape: ModelShape, split: Split, options: EngineOptions, batch: Batch
) -> int:
    """Latent attention's expanded keys and values, beside two hidden states of the step.

    Source: vllm/model_executor/layers/attention/mla_attention.py, forward without metadata.
    """
    latent = shape.latent_attention
    if latent is None:
        return 0
    wanted = max(8 * options.max_model_len, 4 * batch.max_num_seqs * _BLOCK_TOKENS)
    expanded = split.shard(latent.heads) * (latent.qk_nope_head_dim + latent.v_head_dim)
    held = batch.max_num_batched_tokens * 2 * shape.hidden_size
    return (min(wanted, _LATENT_CONTEXT) * expanded + held) * COMPUTE_BYTES
