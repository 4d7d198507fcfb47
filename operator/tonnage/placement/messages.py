"""Formats placement's decisions as sentences with numbers.

Messages are part of status, so they avoid values that change often: they name free GPUs only
where these are insufficient.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.catalog.prices import format_money
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.engines.registry import memory_named
from tonnage.fit.legality.compatibility import Compatibility
from tonnage.fit.messages import format_count, format_gib, format_parallelism
from tonnage.fit.model import IllegalParallelism, Parallelism
from tonnage.fit.questions.question import MemoryModel
from tonnage.fleet.model import Partition, Pool
from tonnage.fleet.pools.report import format_starting, format_unusable
from tonnage.placement.adjustments import EngineAdjustments
from tonnage.placement.model import Candidate, Option
from tonnage.placement.pricing import NO_PRICE
from tonnage.throughput.model import ThroughputEstimate

GIGA: Final = 10**9

_INSTALL_LEADER_WORKER_SET: Final = (
    "kubectl apply --server-side -f https://github.com/kubernetes-sigs/lws/releases/download/"
    "v0.11.0/manifests.yaml"
)

_NAMED_POOLS: Final = 4

_CACHED_FITS: Final = 4096
"""Texts kept, of some hundred bytes each: every plan formats the fit on each pool again."""


def format_fit(option: Option) -> str:
    """Format the parallelism with which the model fits, and the memory for the KV cache."""
    account, pool = option.fit.account, option.pool
    partition, accelerator = pool.partition, pool.accelerator
    return _format_fit(
        option.parallelism,
        tuple(format_adjustments(option.adjustments, memory_named(option.engine))),
        account.kv_cache_bytes,
        account.band_bytes if option.fit.tight else None,
        None
        if partition is None or accelerator is None
        else _format_partition(accelerator, partition),
    )


def format_missing_workload_kind(option: Option) -> str:
    """Format the reason against an option on several nodes where nothing runs such replicas."""
    return (
        f"{format_fit(option)}, but LeaderWorkerSet, which runs a replica on several nodes, is"
        " not installed, or the operator may not list it; to install it:"
        f" {_INSTALL_LEADER_WORKER_SET}"
    )


def format_missing_compute_domains(option: Option) -> str:
    """Format the reason against an option whose nodes a ComputeDomain connects, where the operator
    can make none."""
    return (
        f"{format_fit(option)}, but spec.interconnect.computeDomain of AcceleratorPool"
        f" {option.pool.name} needs ComputeDomains, which the cluster lacks, or which the operator"
        " may not list; install NVIDIA's DRA driver 25.8 or later and the component"
        " compute-domains (chart value settings.computeDomains)"
    )


@lru_cache(_CACHED_FITS)
def _format_fit(
    parallelism: Parallelism,
    adjustments: tuple[str, ...],
    kv_cache_bytes: int,
    band_bytes: int | None,
    partition: str | None,
) -> str:
    """`band_bytes` is the uncertainty where the model fits tightly."""
    kv_cache, fits = format_gib(kv_cache_bytes), "fits"
    if band_bytes is not None:
        kv_cache += f" ± {format_gib(band_bytes)}"
        fits = "fits tightly"
    settings = "".join(f", {setting}" for setting in adjustments)
    if partition is not None:
        return f"{fits} in {partition}{settings} ({kv_cache} GiB for KV)"
    return f"{fits} with {format_parallelism(parallelism)}{settings} ({kv_cache} GiB for KV a GPU)"


def format_choice(option: Option, why: str) -> str:
    """Format the chosen option, its cost and speed, `why` in a few words, and its notes."""
    replicas = format_count(option.replicas, "replica")
    devices = format_devices(option.pool, option.replicas * option.parallelism.gpus)
    if option.cost_per_hour is None:
        cost = f" ({NO_PRICE})"
    else:
        cost = f" at {format_money(option.cost_per_hour)}/h ({option.price_source.text})"
    fit = with_engine_reason(format_fit(option), option)
    parts = [fit, f"{replicas} on {devices}{cost}"]
    if option.replicas and option.estimate is not None:
        parts.append(f"{format_speed(option)} ({format_band(option.estimate)})")
    if option.capacity < option.replicas:
        parts.append(format_capacity(option))
    return "; ".join([*parts, why, *option.notes])


def with_engine_reason(message: str, option: Option) -> str:
    """Add why its engine was chosen, where the spec leaves that to the operator."""
    return f"{message}; {option.engine_reason}" if option.engine_reason else message


def format_speed(option: Option) -> str:
    """Format the estimated tokens per second of all replicas."""
    speed = option.tokens_per_second
    return "no estimate" if speed is None else f"about {speed:.0f} tokens/s"


def format_band(estimate: ThroughputEstimate) -> str:
    """Format the estimate's uncertainty in percent."""
    return f"estimate ±{estimate.band * 100:.0f} %"


def format_capacity(option: Option) -> str:
    """Format how many replicas can start now, and how many once a node autoscaler adds nodes."""
    wanted = format_count(option.replicas, "replica")
    now = f"capacity for {min(option.capacity, option.replicas)} of {wanted} now"
    if option.pool.replica_capacity(option.parallelism.footprint) > option.capacity:
        now += ", as the CPU, memory and storage of its nodes allow"
    added = option.awaited_nodes
    if added == 0:
        return now
    later = min(option.grown_capacity, option.replicas)
    to_come = _format_to_come(option.pool)
    return f"{now}; waits for the node autoscaler: {to_come}, with {added} more it can run {later}"


def _format_to_come(pool: Pool) -> str:
    """Format by how many nodes the pool may grow, and which of its nodes are starting."""
    starting = format_starting(pool)
    if not starting:
        return f"{pool.name} may grow by {format_count(pool.growth, 'node')}"
    growth = f" and may grow by {format_count(pool.growth, 'node')}" if pool.growth else ""
    return f"{pool.name} has {starting}{growth}"


def format_no_capacity(option: Option) -> str:
    """Format that the option fits, but that no replica can start."""
    pool = option.pool
    if pool.nodes.counts.usable == 0:
        return f"{format_fit(option)}, but has no usable node ({format_unusable(pool)})"
    return f"{format_fit(option)}, but {format_needed_gpus(option)}"


def format_needed_gpus(option: Option) -> str:
    """Format the free GPUs that a replica needs, those that the pool has, and nodes of the pool
    that are unusable."""
    pool, footprint = option.pool, option.parallelism.footprint
    gpus = footprint.gpus_per_node
    place = " on one node" if gpus > 1 else ""
    if footprint.nodes > 1:
        topology_key = pool.network.topology_key if pool.network else None
        alike = f" with the same {topology_key}" if topology_key else ""
        place = f" on each of {footprint.nodes} nodes{alike}"
    scattered = f", at most {pool.largest_free_block} on one node" if pool.free else ""
    has = f"{pool.name} has {pool.free} free of {pool.total}{scattered}"
    unusable = format_unusable(pool)
    not_usable = f" (not usable: {unusable})" if unusable else ""
    return f"needs {format_devices(pool, gpus, 'free ')}{place}; {has}{not_usable}"


def format_pool_size(pool: Pool) -> str:
    """Format the pool's devices and nodes."""
    nodes = format_count(len(pool.nodes), "node")
    return f"{format_devices(pool, pool.total)} on {nodes}"


def format_partition_limit(accelerator: Accelerator, partition: Partition | None) -> str:
    """Format the limit of partitions, appended to a shortage; empty for whole GPUs."""
    if partition is None:
        return ""
    return f"; {_format_partition(accelerator, partition)} carries no TP group: TP 1 and PP 1 only"


def format_illegal(shape: ModelShape, cause: IllegalParallelism | None, largest_node: int) -> str:
    """Format that the engine refuses every parallelism over the GPUs of one node."""
    gpus = format_count(largest_node, "GPU")
    why = f": {cause.message}" if cause else ""
    return f"no valid parallelism for {shape.attention_heads} attention heads on up to {gpus}{why}"


def format_overrides(compatibility: Compatibility) -> tuple[str, ...]:
    """Format each compatibility rule that the user overrides."""
    return tuple(
        f"rule {refusal.rule} is overridden: {refusal.message}"
        for refusal in compatibility.overridden
    )


def format_node_link(parallelism: Parallelism, bytes_per_second: float | None) -> str | None:
    """Format how fast the nodes of a replica exchange data; None on one node."""
    if parallelism.nodes == 1 or bytes_per_second is None:
        return None
    return f"its nodes exchange data at {bytes_per_second / GIGA:g} GB/s a GPU"


def format_links(accelerator: Accelerator, parallelism: Parallelism) -> str | None:
    """Format the share of its links that a GPU of a group in a mesh uses, None without a mesh.

    A switch gives every GPU its full bandwidth to any peers, a mesh gives it a link to each peer.
    """
    peers = parallelism.tensor - 1
    pair, every = accelerator.pair_bandwidth, accelerator.link_bandwidth
    if not peers or pair is None or every is None or peers * pair >= every:
        return None
    used, whole = round(peers * pair / GIGA), round(every / GIGA)
    return f"TP {parallelism.tensor} uses {used} of {whole} GB/s of each GPU's links"


def format_pools(candidates: Sequence[Candidate]) -> str:
    """Format the first few candidates with their messages, and how many more there are."""
    named = [f"{each.pool.name}: {each.message}" for each in candidates[:_NAMED_POOLS]]
    if len(candidates) > len(named):
        named.append(f"and {len(candidates) - len(named)} more")
    return "; ".join(named)


def format_reasons(candidates: Sequence[Candidate]) -> str:
    """Format the number of rejected candidates by reason, with an example of each."""
    counts = Counter(candidate.reason for candidate in candidates)
    examples = {candidate.reason: candidate for candidate in reversed(candidates)}
    return "; ".join(
        f"{counts[reason]} {reason} ({example.pool.name}: {example.message})"
        for reason, example in sorted(examples.items())
    )


def format_adjustments(adjustments: EngineAdjustments, engine: MemoryModel) -> list[str]:
    """Format the settings of the engine that Tonnage chose: maxNumSeqs 512."""
    return [
        f"{engine.setting_name(setting)} {value}" for setting, value in adjustments.values.items()
    ]


def format_devices(pool: Pool, count: int, which: str = "") -> str:
    """Format a number of the pool's devices: GPUs, or partitions of them."""
    return format_count(count, f"{which}{'partition' if pool.partition else 'GPU'}")


def _format_partition(accelerator: Accelerator, partition: Partition) -> str:
    return f"one {partition.mode} partition of {accelerator.name}"
