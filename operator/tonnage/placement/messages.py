"""One sentence with numbers for everything that placement decides. GiB appears here only.

Messages stand in status, so they say nothing that changes without need: free GPUs are named only
where they are what lacks.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.compatibility import Compatibility
from tonnage.fit.model import DoesNotFit, IllegalParallelism, MemoryTerm, Parallelism
from tonnage.fleet.model import Partition, Pool
from tonnage.placement.adjustments import EngineAdjustments
from tonnage.placement.model import Candidate, Option
from tonnage.placement.pricing import NO_PRICE, format_money
from tonnage.throughput.model import ThroughputEstimate

GIB: Final = 1024**3
GIGA: Final = 10**9

_NAMED_POOLS: Final = 4
_TERMS: Final = {
    MemoryTerm.WEIGHTS: "the weights need",
    MemoryTerm.ACTIVATION: "activations need",
    MemoryTerm.NON_TORCH: "memory outside torch needs",
    MemoryTerm.GRAPHS: "graphs need",
    MemoryTerm.CORRECTION: "what starts before this one took beyond the calculation needs",
}


def tell_fit(option: Option) -> str:
    """That it fits, with which split."""
    kv_cache, how = format_gib(option.fit.account.kv_cache_bytes), "fits"
    if option.fit.tight:
        kv_cache += f" ± {format_gib(option.fit.account.band_bytes)}"
        how = "fits tightly"
    adjusted = "".join(f", {setting}" for setting in format_adjustments(option.adjustments))
    partition, accelerator = option.pool.partition, option.pool.accelerator
    if partition is not None and accelerator is not None:
        where = f"{_tell_partition(accelerator, partition)}{adjusted}"
        return f"{how} in {where} ({kv_cache} GiB for KV)"
    split = f"{format_split(option.parallelism)}{adjusted}"
    return f"{how} with {split} ({kv_cache} GiB for KV a GPU)"


def tell_chosen(option: Option, why: str) -> str:
    """What was taken, what it costs and delivers, `why` in a few words, and what the user should
    know of it."""
    replicas = format_count(option.replicas, "replica")
    devices = format_devices(option.pool, option.replicas * option.parallelism.gpus)
    if option.cost_per_hour is None:
        cost = f" ({NO_PRICE})"
    else:
        cost = f" at {format_money(option.cost_per_hour)}/h ({option.price_source.text})"
    parts = [tell_fit(option), f"{replicas} on {devices}{cost}"]
    if option.replicas and option.estimate is not None:
        parts.append(f"{tell_speed(option)} ({tell_band(option.estimate)})")
    if option.room < option.replicas:
        parts.append(tell_room(option))
    return "; ".join([*parts, why, *option.notes])


def tell_speed(option: Option) -> str:
    """What all its replicas are estimated to generate."""
    speed = option.tokens_per_second
    return "no estimate" if speed is None else f"about {speed:.0f} tokens/s"


def tell_band(estimate: ThroughputEstimate) -> str:
    """That it is an estimate, and how far it may be off."""
    return f"estimate ±{estimate.band * 100:.0f} %"


def tell_room(option: Option) -> str:
    """How many of the replicas can start now, and how many once a node autoscaler did its part."""
    wanted = format_count(option.replicas, "replica")
    now = f"room for {min(option.room, option.replicas)} of {wanted} now"
    added = option.awaited_nodes
    if added == 0:
        return now
    growth = f"{option.pool.name} may grow by {format_count(option.pool.growth, 'node')}"
    later = min(option.grown_room, option.replicas)
    return f"{now}; waits for the node autoscaler: {growth}, with {added} more it takes {later}"


def tell_no_room(option: Option) -> str:
    """That it would fit if GPUs were free."""
    pool = option.pool
    if pool.nodes.counts.usable == 0:
        unusable = pool.nodes.unusable()
        first = f"{unusable[0].name}: {unusable[0].unusable}"
        more = f", and {len(unusable) - 1} more" if len(unusable) > 1 else ""
        return f"{tell_fit(option)}, but has no usable node ({first}{more})"
    return f"{tell_fit(option)}, but {tell_need(option)}"


def tell_need(option: Option) -> str:
    """How many free GPUs a replica needs, and how many there are."""
    pool, gpus = option.pool, option.parallelism.gpus
    place = " on one node" if gpus > 1 else ""
    scattered = f", at most {pool.largest_free_block} on one node" if pool.free else ""
    has = f"{pool.name} has {pool.free} free of {pool.total}{scattered}"
    return f"needs {format_devices(pool, gpus, 'free ')}{place}; {has}"


def tell_size(pool: Pool) -> str:
    """How much of the fleet the pool is."""
    nodes = format_count(len(pool.nodes), "node")
    return f"{format_devices(pool, pool.total)} on {nodes}"


def tell_no_group(accelerator: Accelerator, partition: Partition | None) -> str:
    """What limits devices that are partitions, to be added to what lacks; empty for whole GPUs."""
    if partition is None:
        return ""
    return f"; {_tell_partition(accelerator, partition)} carries no TP group: TP 1 and PP 1 only"


def tell_shortage(shortage: DoesNotFit, parallelism: Parallelism, required_tokens: int) -> str:
    """Which part of memory lacks how much, inside vLLM's budget or beside it."""
    part = _TERMS.get(shortage.term)
    if part is None:
        part = f"the KV cache of {required_tokens} tokens needs"
    needed, left = _format_apart(shortage.needed_bytes, shortage.available_bytes)
    device = format_gib(shortage.account.device_bytes)
    asked = f"with {format_split(parallelism)} {part} {needed} GiB a GPU"
    if shortage.beside_budget:
        return (
            f"{asked} beside vLLM's share of the memory; the GPU memory utilization leaves {left}"
            f" of its {device} GiB free: lower it"
        )
    return f"{asked}; {left} of its {device} GiB are left"


def tell_illegal(shape: ModelShape, cause: IllegalParallelism | None, largest_node: int) -> str:
    """That vLLM refuses every split over the GPUs of one node."""
    gpus = format_count(largest_node, "GPU")
    why = f": {cause.message}" if cause else ""
    return f"no legal split of {shape.attention_heads} attention heads over up to {gpus}{why}"


def tell_rules(compatibility: Compatibility) -> tuple[str, ...]:
    """Each refusal that the user overrode."""
    return tuple(
        f"rule {refusal.rule} is overridden: {refusal.message}"
        for refusal in compatibility.overridden
    )


def tell_links(accelerator: Accelerator, parallelism: Parallelism) -> str | None:
    """That a group of GPUs in a mesh uses only the links among its members, None without a mesh.

    A switch gives every GPU all of its bandwidth to any peers, a mesh a link to each peer.
    """
    peers = parallelism.tensor - 1
    pair, every = accelerator.pair_bandwidth, accelerator.link_bandwidth
    if not peers or pair is None or every is None or peers * pair >= every:
        return None
    used, whole = round(peers * pair / GIGA), round(every / GIGA)
    return f"TP {parallelism.tensor} uses {used} of {whole} GB/s of each GPU's links"


def tell_pools(candidates: Sequence[Candidate]) -> str:
    """The first few candidates with their messages, and how many more there are."""
    named = [f"{found.pool.name}: {found.message}" for found in candidates[:_NAMED_POOLS]]
    if len(candidates) > len(named):
        named.append(f"and {len(candidates) - len(named)} more")
    return "; ".join(named)


def tell_reasons(candidates: Sequence[Candidate]) -> str:
    """How many candidates were rejected for which reason, with an example of each."""
    counted = Counter(found.reason for found in candidates)
    examples = {found.reason: found for found in reversed(candidates)}
    return "; ".join(
        f"{counted[reason]} {reason} ({example.pool.name}: {example.message})"
        for reason, example in sorted(examples.items())
    )


def format_split(parallelism: Parallelism) -> str:
    """A split as people write it: TP 4, or TP 8, PP 2."""
    stages = f", PP {parallelism.pipeline}" if parallelism.pipeline > 1 else ""
    ranks = f", DP {parallelism.data}" if parallelism.data > 1 else ""
    return f"TP {parallelism.tensor}{stages}{ranks}"


def format_adjustments(adjustments: EngineAdjustments) -> list[str]:
    """What Tonnage sets of the engine, each as people write it: maxNumSeqs 512."""
    return [f"{knob} {value}" for knob, value in adjustments.values.items()]


def format_devices(pool: Pool, count: int, which: str = "") -> str:
    """A number of the pool's devices: GPUs, or partitions of them."""
    return format_count(count, f"{which}{'partition' if pool.partition else 'GPU'}")


def format_gib(size_bytes: int) -> str:
    """Bytes in GiB with one decimal."""
    return f"{size_bytes / GIB:.1f}"


def _format_apart(needed_bytes: int, left_bytes: int) -> tuple[str, str]:
    """Both in GiB, with as many decimals as it takes to see which is more."""
    for decimals in (1, 2):
        needed, left = (f"{size / GIB:.{decimals}f}" for size in (needed_bytes, left_bytes))
        if needed != left:
            return needed, left
    return f"{needed_bytes / GIB:.4f}", f"{left_bytes / GIB:.4f}"


def format_count(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _tell_partition(accelerator: Accelerator, partition: Partition) -> str:
    return f"one {partition.mode} partition of {accelerator.name}"
