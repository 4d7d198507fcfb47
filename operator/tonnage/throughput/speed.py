"""Derive the effective speeds of one GPU of a replica from its peaks."""

from dataclasses import dataclass
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import Quantization
from tonnage.fit.model import Parallelism
from tonnage.throughput.figures import Bands, Figures, ThroughputData

_CURRENT_ENGINE: Final = (1.0, 1.0)
"""Layer factor and compute factor of current releases."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Effective speeds of one GPU in its group.

    `read` is bytes per second; `compute`, `expert_compute`, `attention` and `prompt_attention` are
    operations per second in linear layers, experts, and attention of decoding requests and of
    prompts; `links` is bytes per second to the group's other
    GPUs, None without any. Fixed seconds per step: of a layer, additional ones of a layer with
    experts, of a collective operation, and of a request. `weight_reads` is the memory reads per
    byte of weights. `band` is the uncertainty of the estimate.
    """

    read: float
    compute: float
    expert_compute: float
    attention: float
    prompt_attention: float
    links: float | None
    layer_seconds: float
    expert_layer_seconds: float
    collective_seconds: float
    request_seconds: float
    weight_reads: float
    band: Bands


def device_speed(
    accelerator: Accelerator,
    architecture: str,
    loaded: Quantization | None,
    parallelism: Parallelism,
    release: EngineRelease,
    share: float,
    data: ThroughputData,
) -> Speed | None:
    """Return the speed of a device with `share` of a GPU, for a model class with weights in the
    format `loaded`.

    Returns None when the catalogue lacks the accelerator's bandwidth, operations, links or figures.
    """
    figures, bandwidth = data.figures(accelerator), accelerator.memory_bandwidth
    if figures is None or bandwidth is None or accelerator.bf16_flops is None:
        return None
    links = _find_link_speed(accelerator, parallelism, data)
    if links is None and parallelism.tensor * parallelism.data > 1:
        return None
    engine = data.older_engine(release.version)
    layer_factor, compute_factor = (
        (engine.layer_factor, engine.compute_factor) if engine else _CURRENT_ENGINE
    )
    expands = data.expands(accelerator.arch, release.version, loaded, architecture)
    compute = share * compute_factor * _find_compute_speed(accelerator, loaded, figures, data)
    return Speed(
        read=share * bandwidth * figures.bandwidth_efficiency,
        compute=compute,
        expert_compute=compute * data.expert_efficiency,
        attention=share * accelerator.bf16_flops * figures.attention_efficiency,
        prompt_attention=share * accelerator.bf16_flops * figures.prompt_attention_efficiency,
        links=links,
        layer_seconds=figures.seconds_per_layer * layer_factor,
        expert_layer_seconds=figures.seconds_per_expert_layer * layer_factor,
        collective_seconds=figures.seconds_per_collective * layer_factor,
        request_seconds=engine.seconds_per_request if engine else data.seconds_per_request,
        weight_reads=data.expansion_reads if expands else 1.0,
        band=figures.band,
    )


def _find_compute_speed(
    accelerator: Accelerator,
    loaded: Quantization | None,
    figures: Figures,
    data: ThroughputData,
) -> float:
    """Return the operations per second of the matrix units in the precision of the weights.

    Kernels expand weights of other precisions to 16 bits, which reduces the speed.
    """
    assert accelerator.bf16_flops is not None, "device_speed checks this"
    efficiency = figures.compute_efficiency
    if loaded is None or loaded.weight_bits == 16:
        return accelerator.bf16_flops * efficiency["bf16"]
    if loaded.is_float and loaded.weight_bits == 8 and accelerator.fp8_flops is not None:
        return accelerator.fp8_flops * efficiency.get("fp8", efficiency["bf16"])
    if loaded.is_float and accelerator.native_fp4 and accelerator.fp4_flops is not None:
        return accelerator.fp4_flops * efficiency.get("fp4", efficiency["bf16"])
    return accelerator.bf16_flops * efficiency["bf16"] * data.weight_only_efficiency


def _find_link_speed(
    accelerator: Accelerator, parallelism: Parallelism, data: ThroughputData
) -> float | None:
    """Return the bytes per second from a GPU to its group on the same node; in a mesh, only over
    its own links."""
    group = parallelism.tensor * parallelism.data
    peers = min(group, parallelism.footprint.gpus_per_node) - 1
    if not peers or accelerator.link_bandwidth is None or accelerator.pair_bandwidth is None:
        return None
    reachable = min(accelerator.link_bandwidth, peers * accelerator.pair_bandwidth)
    return reachable * data.link_efficiency
