"""What vLLM may use of a device, and what has to find room outside of that."""

import math

from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Vendor
from tonnage.fit.model import EngineOptions, MemoryTerm


def budget_bytes(device_bytes: int, options: EngineOptions, release: EngineRelease) -> int:
    """Total x utilization (vllm/v1/worker/utils.py request_memory)."""
    utilization = options.gpu_memory_utilization or release.gpu_memory_utilization
    return math.ceil(device_bytes * utilization)


def takes_graphs(vendor: Vendor, options: EngineOptions, release: EngineRelease) -> bool:
    """Whether graphs are taken from the budget; else they need what utilization leaves free."""
    return options.graphs_in_budget and vendor in release.graphs.in_budget_of


def beside_budget(
    vendor: Vendor, graphs: int, options: EngineOptions, release: EngineRelease
) -> tuple[tuple[MemoryTerm, int], ...]:
    """What utilization has to leave free: the process's context, and graphs up to some release.

    A release that checks free memory at start refuses when the context finds no room; one that
    captures graphs after it has filled its budget dies then.
    """
    context = 0 if release.charges_context else release.libraries.context_bytes[vendor]
    uncharged = 0 if takes_graphs(vendor, options, release) else graphs
    return (MemoryTerm.NON_TORCH, context), (MemoryTerm.GRAPHS, uncharged)
