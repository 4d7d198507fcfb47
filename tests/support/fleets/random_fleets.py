"""Random fleets of every kind of pool, and random requests for them, from one random source."""

from dataclasses import replace
from random import Random
from typing import Any

from tests.support.fleets.gpu_nodes import (
    H100,
    H200,
    L40S,
    MI300X,
    MI355X,
    UNPRICED,
    Raw,
    amd_node,
    gpu_pod_body,
    nvidia_node,
)
from tests.support.fleets.placing import (
    DEEPSEEK_V3,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B_FP8,
    OWNER,
    checkpoint_of,
    declared,
    grow,
    pools_of,
    spec_of,
)
from tonnage.fit.model import Parallelism
from tonnage.fleet.model import DeclaredPool, GpuPod, Partition, Pool
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.placement.model import Request

KINDS: dict[str, tuple[Any, dict[str, str], int]] = {
    "mi300x": (amd_node, MI300X, 8),
    "mi355x": (amd_node, MI355X, 8),
    "unpriced": (amd_node, UNPRICED, 8),
    "mi210": (amd_node, {"amd.com/gpu.device-id": "740f"}, 4),
    "unsupported": (amd_node, {"amd.com/gpu.device-id": "738c"}, 4),
    "h100": (nvidia_node, H100, 8),
    "h200": (nvidia_node, H200, 2),
    "l40s": (nvidia_node, L40S, 4),
    "unknown": (nvidia_node, {}, 8),
}
PARTITIONS = (
    Partition("cpx_nps4", 24 * 2**30, 1 / 8),
    Partition("3g.40gb", 40 * 2**30, 3 / 8),
)
MODELS = (
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B_FP8,
    DEEPSEEK_V3,
    checkpoint_of("llama-3.3-70b-fp8-dynamic"),
)


def random_pools(random: Random, nodes: int) -> tuple[Pool, ...]:
    """Pools of so many nodes: declared and discovered, some in use, cordoned, able to grow, or with
    devices that are parts of a GPU."""
    raw = [_random_node(random, number) for number in range(nodes)]
    shuffled = random.sample(raw, len(raw))
    teams = sorted({node["metadata"]["labels"].get("pool", "") for node in raw} - {""})
    pools = [_random_declared(random, team) for team in teams if random.random() < 0.8]
    pools += [_random_declared(random, "empty")] if random.random() < 0.3 else []
    pods = tuple(pod for node in raw for pod in _random_pods(random, node))
    built = pools_of(shuffled, pods=pods, declared_pools=tuple(pools))
    return tuple(_vary(random, pool) for pool in built)


def random_request(random: Random, pools: tuple[Pool, ...]) -> Request:
    """A request, with or without bounds, of an object whose replicas may run already."""
    keep = None
    if pools and random.random() < 0.3:
        keep = (random.choice(pools).name, Parallelism(random.choice([1, 2, 4, 8])))
    spec: dict[str, Any] = {
        "workload": _random_workload(random),
        "placement": _random_placement(random),
    }
    if random.random() < 0.5:
        spec["replicas"] = random.choice([0, 1, 2, 5, 12])
    else:
        spec["scaling"] = {"minReplicas": random.choice([1, 3]), "maxReplicas": 40}
    held = random.randrange(3) if keep else 0
    return Request(OWNER, spec_of(**spec), random.choice(MODELS), keep, held)


def _random_node(random: Random, number: int) -> Raw:
    kind = random.choice(sorted(KINDS))
    make, labels, gpus = KINDS[kind]
    team = {"pool": f"{kind}-{random.randrange(3)}"} if random.random() < 0.4 else {}
    cordoned = random.random() < 0.15
    node: Raw = make(f"{kind}-{number:04}", labels | team, gpus=gpus, cordoned=cordoned)
    return node


def _random_pods(random: Random, node: Raw) -> list[GpuPod]:
    name, capacity = node["metadata"]["name"], node["status"]["capacity"]
    vendor = "amd" if "amd.com/gpu" in capacity else "nvidia"
    used = random.choice([0, 0, 1, 7, 8])
    body = gpu_pod_body(f"pod-{name}", node=name, gpus={vendor: str(used)})
    pod = read_gpu_pod(body)
    return [pod] if pod is not None else []


def _random_declared(random: Random, team: str) -> DeclaredPool:
    spec: dict[str, Any] = {"labels": {"team": random.choice(["chat", "search"])}}
    if random.random() < 0.4:
        spec["costPerGPUHour"] = random.choice(["0", "0.0004", "1.99", "2.5", "99"])
    if random.random() < 0.2:
        spec["weight"] = random.choice([0, 200])
    return declared(f"team-{team}", {"pool": team}, **spec)


def _vary(random: Random, pool: Pool) -> Pool:
    if pool.accelerator is not None and random.random() < 0.15:
        pool = replace(pool, partition=random.choice(PARTITIONS))
    return grow(pool, random.choice([0, 0, 0, 1, 4]))


def _random_workload(random: Random) -> dict[str, Any]:
    targets: dict[str, str] = {}
    if random.random() < 0.3:
        targets["timePerOutputToken"] = random.choice(["1ms", "20ms", "50ms", "1s"])
    if random.random() < 0.2:
        targets["timeToFirstToken"] = random.choice(["10ms", "200ms", "2s"])
    return {
        "concurrency": random.choice([1, 20, 300, 5000]),
        "maxModelLen": random.choice([4096, 32768, 131072]),
        "inputTokens": random.choice([100, 2000]),
        "latencyTargets": targets,
    }


def _random_placement(random: Random) -> dict[str, Any]:
    placement: dict[str, Any] = {
        "policy": random.choice(["LowestCost", "FewestGPUs", "HighestThroughput"])
    }
    if random.random() < 0.3:
        placement["maxCostPerHour"] = random.choice(["0.5", "2.00", "12", "500"])
    if random.random() < 0.15:
        placement["accelerators"] = ["mi300x", "h100-sxm-80gb"]
    if random.random() < 0.15:
        placement["poolSelector"] = {"matchLabels": {"team": "chat"}}
    return placement
