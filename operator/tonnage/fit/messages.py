"""Formats the verdicts of the memory calculation, with numbers in GiB."""

from typing import Final

from tonnage.fit.model import DoesNotFit, MemoryTerm, Parallelism

GIB: Final = 1024**3

_TERMS: Final = {
    MemoryTerm.WEIGHTS: "the weights need",
    MemoryTerm.LORA: "buffers for LoRA adapters need",
    MemoryTerm.ACTIVATION: "activations need",
    MemoryTerm.NON_TORCH: "memory outside torch needs",
    MemoryTerm.GRAPHS: "graphs need",
    MemoryTerm.CORRECTION: "the correction from earlier starts needs",
}


def format_shortage(shortage: DoesNotFit, parallelism: Parallelism, required_tokens: int) -> str:
    """Format the part of memory that is too small, inside vLLM's budget or outside it."""
    part = _TERMS.get(shortage.term)
    if part is None:
        part = f"the KV cache of {required_tokens} tokens needs"
    needed, left = _format_apart(shortage.needed_bytes, shortage.available_bytes)
    device = format_gib(shortage.account.device_bytes)
    need = f"with {format_parallelism(parallelism)} {part} {needed} GiB a GPU"
    if shortage.outside_budget:
        return (
            f"{need} outside vLLM's share of the memory; the GPU memory utilization leaves {left}"
            f" of its {device} GiB free: lower it"
        )
    return f"{need}; {left} of its {device} GiB are left"


def format_parallelism(parallelism: Parallelism) -> str:
    """Format a parallelism: TP 4, or TP 8, PP 2 on 2 nodes."""
    stages = f", PP {parallelism.pipeline}" if parallelism.pipeline > 1 else ""
    ranks = f", DP {parallelism.data}" if parallelism.data > 1 else ""
    nodes = f" on {parallelism.nodes} nodes" if parallelism.nodes > 1 else ""
    return f"TP {parallelism.tensor}{stages}{ranks}{nodes}"


def format_gib(size_bytes: int) -> str:
    """Format bytes as GiB with one decimal."""
    return f"{size_bytes / GIB:.1f}"


def format_count(count: int, noun: str) -> str:
    """Format a number with its noun, in the plural except for 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _format_apart(needed_bytes: int, left_bytes: int) -> tuple[str, str]:
    """Format both as GiB, with enough decimals to show which is more."""
    for decimals in (1, 2):
        needed, left = (f"{size / GIB:.{decimals}f}" for size in (needed_bytes, left_bytes))
        if needed != left:
            return needed, left
    return f"{needed_bytes / GIB:.4f}", f"{left_bytes / GIB:.4f}"
