"""The activation peak: memory that vLLM's profile run uses at once, on top of the weights.

The run encodes images if the model takes any, passes max_num_batched_tokens tokens through the
model and samples for max_num_seqs sequences (vllm/v1/worker/gpu_model_runner.py profile_run).
Memory that outlives a stage adds to the next one; of the stages themselves the largest counts.
"""

from dataclasses import dataclass
from typing import Final

from tonnage.catalog.model import Accelerator, Vendor
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.activation.encoder import encoder_memory
from tonnage.fit.activation.layer_peak import expert_width, layer_width
from tonnage.fit.activation.sampler import count_bytes, profiled_sampler, sampling_bytes
from tonnage.fit.batch import Batch
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights.matrix import Sharding
from tonnage.fit.weights.precision import COMPUTE_BYTES

_BLOCK_TOKENS: Final = 16
_LATENT_CONTEXT: Final = 65536
"""Most tokens whose keys and values latent attention expands at a time
(vllm/model_executor/layers/attention/mla_attention.py determine_chunked_prefill_workspace_size)."""


@dataclass(frozen=True, slots=True)
class ActivationPeak:
    """The peak in bytes, and the part of it that encoding images or sound causes."""

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
    sharding = Sharding(
        tensor=parallelism.tensor,
        data=parallelism.data,
        expert_parallel=options.enable_expert_parallel,
    )
    encoder = encoder_memory(shape, batch, options, run)
    expert_bytes = _expert_bytes(shape, sharding, batch, run.expert_chunk_tokens)
    layer_bytes = expert_bytes + max(
        batch.max_num_batched_tokens * layer_width(shape, sharding) * COMPUTE_BYTES,
        _latent_context_bytes(shape, sharding, options, batch),
    )
    rows = batch.max_num_seqs
    if release.whole_prefill is not None and encoder.items:
        # V0 profiles at most one sequence per image of the step.
        rows = min(rows, encoder.items)
    sampler_bytes = _sampling_bytes(shape, parallelism, batch, rows, accelerator.vendor, release)
    if run.keeps_expert_workspace:
        sampler_bytes += expert_bytes
    language_bytes = max(layer_bytes, sampler_bytes)
    stages_bytes = max(encoder.peak_bytes, encoder.kept_bytes + language_bytes)
    blas = release.libraries.blas_bytes
    constant_bytes = blas.get(accelerator.arch, blas["default"])
    constant_bytes += count_bytes(run, batch.max_num_seqs, shape)
    return ActivationPeak(constant_bytes + stages_bytes, stages_bytes - language_bytes)


def _sampling_bytes(
    shape: ModelShape,
    parallelism: Parallelism,
    batch: Batch,
    rows: int,
    vendor: Vendor,
    release: EngineRelease,
) -> int:
    """The sampler's peak for `rows` sequences, the step's hidden states included.

    vLLM picks the hidden state of each sequence's last token and replaces it by a random one
    (vllm/v1/worker/gpu_model_runner.py _dummy_sampler_run).
    """
    hidden_bytes = (batch.max_num_batched_tokens + 2 * rows) * shape.hidden_size * COMPUTE_BYTES
    sampler = profiled_sampler(release.profile_run, vendor, shape)
    buffer_rows = release.libraries.sampler_rows
    return hidden_bytes + sampling_bytes(
        sampler, rows, shape.vocab_size, parallelism.tensor, buffer_rows
    )


def _expert_bytes(
    shape: ModelShape, sharding: Sharding, batch: Batch, chunk_tokens: int | None
) -> int:
    """The experts' workspace for a step, or for one chunk where the release works in chunks.

    With data parallelism, each rank gathers the hidden states of all ranks, and its experts process
    all of them: vllm/distributed/device_communicators/all2all.py AgRsAll2AllManager.dispatch.
    """
    if shape.experts is None:
        return 0
    tokens = sharding.data * batch.max_num_batched_tokens
    gathered = tokens * shape.hidden_size if sharding.data > 1 else 0
    if chunk_tokens is not None:
        tokens = min(tokens, chunk_tokens)
    return (tokens * expert_width(shape, sharding) + gathered) * COMPUTE_BYTES


def _latent_context_bytes(
    shape: ModelShape, sharding: Sharding, options: EngineOptions, batch: Batch
) -> int:
    """Latent attention's expanded keys and values, plus two hidden states of the step.

    Source: vllm/model_executor/layers/attention/mla_attention.py, forward without metadata.
    """
    latent = shape.latent_attention
    if latent is None:
        return 0
    context_tokens = max(8 * options.max_model_len, 4 * batch.max_num_seqs * _BLOCK_TOKENS)
    expanded_width = sharding.shard(latent.heads) * (latent.qk_nope_head_dim + latent.v_head_dim)
    hidden_elements = batch.max_num_batched_tokens * 2 * shape.hidden_size
    return (min(context_tokens, _LATENT_CONTEXT) * expanded_width + hidden_elements) * COMPUTE_BYTES
