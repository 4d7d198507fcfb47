"""Memory beside weights and KV cache: activations, what is not torch's, graphs.

The factors are measured from public start-up logs; they and their sources are in the catalogue's
engines.yaml.
"""

from collections.abc import Mapping

from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Vendor
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.batch import Batch
from tonnage.fit.matrix import Split
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.precision import COMPUTE_BYTES


def activation_bytes(
    shape: ModelShape, parallelism: Parallelism, batch: Batch, release: EngineRelease
) -> int:
    """The peak of the profile run: the sampler's, or that of the forward pass if larger.

    Both run one after the other. A multimodal model has its encoder's peak on top.
    """
    figures = release.overheads
    peak = max(
        _sampler_peak(shape, batch, figures.sampler_peak_factor),
        _forward_peak(shape, parallelism, batch, release),
        figures.activation_floor_bytes,
    )
    return peak + (figures.multimodal_activation_bytes if shape.towers else 0)


def non_torch_bytes(parallelism: Parallelism, vendor: Vendor, release: EngineRelease) -> int:
    """Communication buffers and kernels that torch does not account for."""
    return _at_degree(release.overheads.non_torch_bytes[vendor], parallelism.gpus)


def graph_bytes(
    parallelism: Parallelism, options: EngineOptions, vendor: Vendor, release: EngineRelease
) -> int:
    """CUDA or HIP graphs, as far as the release subtracts them from the KV cache's memory."""
    if options.enforce_eager or not release.graphs_in_budget:
        return 0
    return _at_degree(release.overheads.graph_bytes[vendor], parallelism.tensor)


def _sampler_peak(shape: ModelShape, batch: Batch, factor: float) -> int:
    """Logits of every sequence in 32 bits and the sampler's copies of them."""
    return int(factor * batch.max_num_seqs * shape.vocab_size * 4)


def _forward_peak(
    shape: ModelShape, parallelism: Parallelism, batch: Batch, release: EngineRelease
) -> int:
    """Hidden states and MLP intermediates of one full step in one layer.

    Experts hold the routed copies of their tokens (vllm/model_executor/layers/fused_moe).
    """
    split = Split(tensor=parallelism.tensor)
    inner = split.shard(shape.intermediate_size)
    figures = release.overheads
    width = figures.forward_hidden_factor * shape.hidden_size + figures.forward_mlp_factor * inner
    if shape.experts is not None:
        routed = split.shard(shape.experts.intermediate_size)
        width += shape.experts.per_token * (max(2 * routed, shape.hidden_size) + routed)
    return batch.max_num_batched_tokens * width * COMPUTE_BYTES


def _at_degree(table: Mapping[int, int], degree: int) -> int:
    """The entry of the largest degree that is not above `degree`."""
    return table[max(known for known in table if known <= degree)]
