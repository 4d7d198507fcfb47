"""The memory of a device that vLLM may use, and the memory that it needs outside this budget."""

import math

from tonnage.catalog.model import Vendor
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.activation.sampler import runs_on_v2
from tonnage.fit.model import EngineOptions, MemoryTerm


def budget_bytes(device_bytes: int, options: EngineOptions, release: EngineRelease) -> int:
    """Total x utilization (vllm/v1/worker/utils.py request_memory)."""
    utilization = options.gpu_memory_utilization or release.gpu_memory_utilization
    return math.ceil(device_bytes * utilization)


def charges_graphs(
    shape: ModelShape, vendor: Vendor, options: EngineOptions, release: EngineRelease
) -> bool:
    """Whether graphs count against the budget; else they use memory outside it."""
    graphs = release.graphs
    if runs_on_v2(release.profile_run, shape) and not graphs.v2_in_budget:
        return False
    return options.graphs_in_budget and vendor in graphs.in_budget_of


def outside_budget_terms(
    shape: ModelShape, vendor: Vendor, graphs: int, options: EngineOptions, release: EngineRelease
) -> tuple[tuple[MemoryTerm, int], ...]:
    """Memory needed outside the budget: the process's context, and graphs up to some release.

    A release that checks free memory at start refuses to start if the context does not fit; one
    that captures graphs after it has filled its budget crashes if they do not fit.
    """
    context = 0 if release.charges_context else release.libraries.context_bytes[vendor]
    uncharged = 0 if charges_graphs(shape, vendor, options, release) else graphs
    return (MemoryTerm.NON_TORCH, context), (MemoryTerm.GRAPHS, uncharged)
