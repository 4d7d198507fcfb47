"""Random fleets and batches of objects such as a platform team has: for benchmarks."""

import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from e2e.nodes.descriptions import render_nodes
from tests.support.engines.shapes import CONFIGS
from tests.support.fleets.placing import CATALOG, checkpoint_of
from tonnage.api.parse import parse_spec
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import DeclaredPool, FleetSnapshot, GpuPod, Node
from tonnage.fleet.nodes.node import read_node
from tonnage.placement.judge import PoolJudge
from tonnage.placement.model import Rejection, Request

_KINDS: Final = {
    "mi300x": 8,
    "mi325x": 8,
    "mi355x": 8,
    "mi210": 4,
    "h100-sxm-80gb": 8,
    "h100-nvl-94gb": 4,
    "h200-sxm-141gb": 8,
    "a100-sxm-80gb": 8,
    "a100-sxm-40gb": 4,
    "b200-180gb": 8,
    "l40s": 4,
    "l4": 4,
}
"""Accelerators and how many of them a node has."""

_PRICE_PER_GIB: Final = 0.02
"""US dollars an hour for one GiB of device memory where there is no list price; the list prices of
May 2026 lie between 0.008 (MI325X) and 0.038 (H100)."""

_OWN_PRICE: Final = (0.6, 1.4)
"""What a platform team pays, as a multiple of that: contracts are cheaper, small clouds dearer."""

_SMALL: Final = (
    "llama-3.1-8b",
    "lfm2-8b-a1b",
    "falcon-mamba-7b",
    "mamba-codestral-7b",
    "gemma-3-27b",
    "falcon-h1-34b",
    "granite-4.0-h-small",
    "kimi-linear-48b-a3b",
)
_LARGE: Final = (
    "mixtral-8x7b",
    "jamba-v0.1",
    "gpt-oss-120b",
    "llama-3.3-70b",
    "llama-3.3-70b-fp8-dynamic",
    "qwen2.5-72b-awq",
    "qwen3-235b-a22b-fp8",
    "llama-3.1-405b-fp8",
    "deepseek-v4-flash",
    "deepseek-v3",
    "step-3.5-flash",
    "mimo-v2-flash",
)


@dataclass(frozen=True, slots=True)
class RandomBatch:
    """A fleet and the objects to be placed on it, in the order of their creation."""

    fleet: FleetSnapshot
    requests: tuple[Request, ...]


def random_batch(seed: int, objects: int) -> RandomBatch:
    """Three to six kinds of nodes, between 1.1 and 3 times the GPUs that the objects need at least.

    A third of the nodes is partly used. Half of the pools is declared with a price of its own, and
    all of those whose accelerator has no list price.
    """
    chance = random.Random(seed)
    kinds = chance.sample(sorted(_KINDS), chance.randint(3, 6))
    declared = tuple(_declare(kind, chance) for kind in kinds if _wants_price(kind, chance))
    one_of_each = FleetSnapshot(
        tuple(_nodes(kind, 1)[0] for kind in kinds), declared_pools=declared
    )
    requests: list[Request] = []
    needed = 0
    while len(requests) < objects:
        request = _random_request(f"object-{len(requests):02}", chance)
        gpus = _fewest_gpus(request, one_of_each)
        if gpus is not None:
            requests.append(request)
            needed += gpus
    nodes, pods = _random_nodes(kinds, needed * chance.uniform(1.1, 3.0), chance)
    return RandomBatch(FleetSnapshot(nodes, pods, declared_pools=declared), tuple(requests))


def _wants_price(kind: str, chance: random.Random) -> bool:
    return CATALOG.accelerator(kind).price is None or chance.random() < 0.5


def _declare(kind: str, chance: random.Random) -> DeclaredPool:
    """A pool of all nodes of this kind."""
    accelerator = CATALOG.accelerator(kind)
    assert accelerator.memory_bytes is not None
    usual = accelerator.memory_bytes / 2**30 * _PRICE_PER_GIB
    if accelerator.price is not None:
        usual = float(accelerator.price.usd_per_gpu_hour)
    price = usual * chance.uniform(*_OWN_PRICE)
    spec = {"nodeSelector": {"kind": kind}, "costPerGPUHour": f"{price:.2f}"}
    return DeclaredPool(f"team-{kind}", {}, AcceleratorPoolSpec.model_validate(spec))


def _random_nodes(
    kinds: list[str], gpus: float, chance: random.Random
) -> tuple[tuple[Node, ...], tuple[GpuPod, ...]]:
    """Nodes of random kinds with at least so many free GPUs."""
    counts = dict.fromkeys(kinds, 0)
    used: dict[str, int] = {}
    free = 0.0
    while free < gpus or not all(counts.values()):
        kind = min(kinds, key=lambda one: (counts[one] > 0, chance.random()))
        size = _KINDS[kind]
        taken = chance.randint(1, size) if chance.random() < 1 / 3 else 0
        used[f"{kind}-{counts[kind]}"] = taken
        counts[kind] += 1
        free += size - taken
    nodes = [node for kind in kinds for node in _nodes(kind, counts[kind])]
    return tuple(nodes), tuple(
        GpuPod(f"other-{node.name}", node.name, {resource: used[node.name]})
        for node in nodes
        for resource in node.allocatable
        if used[node.name]
    )


def _nodes(kind: str, count: int) -> list[Node]:
    group = {"name": kind, "accelerator": kind, "count": count, "gpusPerNode": _KINDS[kind]}
    bodies = render_nodes({"groups": [{**group, "labels": {"kind": kind}}]})
    return [read_node(body) for body in bodies]


def _random_request(name: str, chance: random.Random) -> Request:
    model = chance.choice(_SMALL if chance.random() < 0.6 else _LARGE)
    checkpoint = checkpoint_of(model)
    longest = max(4096, checkpoint.shape.max_position_embeddings or 0)
    lengths = [size for size in (4096, 8192, 16384, 32768, 65536, 131072) if size <= longest]
    max_model_len = chance.choice(lengths)
    tokens = min(max_model_len // 2, chance.choice((200, 500, 1000, 2000, 4000, 8000)))
    workload = {
        "maxModelLen": max_model_len,
        "concurrency": round(2 ** chance.uniform(0, 8)),
        "inputTokens": tokens,
        "outputTokens": min(max_model_len // 2, chance.choice((100, 200, 500, 1000))),
    }
    spec: dict[str, Any] = {
        "model": {"name": model, "source": {"inline": {"config": _config(model)}}},
        "workload": workload,
    }
    if chance.random() < 0.5:
        spec["replicas"] = chance.choice((1, 1, 1, 2, 2, 3, 4))
    return Request(("batch", name), parse_spec(spec), checkpoint)


@cache
def _config(model: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((CONFIGS / f"{model}.json").read_text("utf-8"))
    return config


def _fewest_gpus(request: Request, fleet: FleetSnapshot) -> int | None:
    """GPUs that it needs at least on any of these pools; None when it runs on none of them."""
    judge = PoolJudge(request, CATALOG)
    judged = [judge.options(pool) for pool in build_pools(fleet, CATALOG)]
    return min(
        (
            option.gpus
            for options in judged
            if not isinstance(options, Rejection)
            for option in options
        ),
        default=None,
    )
