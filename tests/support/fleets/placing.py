"""From raw nodes and a spec to a decision, as the loop goes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.engines.shapes import load_shape
from tests.support.fleets.gpu_nodes import Raw, gpu_pod_body, nvidia_node, snapshot_of
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import parse_spec
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint, Quantization
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import DeclaredPool, GpuPod, Pool
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.fleet.pool_nodes import PoolNodes, as_blocks
from tonnage.fleet.pools.declared import read_declared_pool
from tonnage.placement.decide import decide
from tonnage.placement.model import Candidate, Decision, Option, Request, Verdict

MI300X_POOL, MI355X_POOL = "amd-mi300x", "amd-mi355x"
H100_POOL, H200_POOL = "nvidia-h100-sxm-80gb", "nvidia-h200-sxm-141gb"
L40S_POOL = "nvidia-l40s"
UNPRICED_POOL = "amd-mi350x"

CATALOG = load_catalog()
OWNER = ("chat", "llama")


def checkpoint_of(name: str) -> Checkpoint:
    """A model by its config.json under tests/data/configs."""
    return Checkpoint(load_shape(name))


LLAMA_8B = checkpoint_of("llama-3.1-8b")
LLAMA_70B = checkpoint_of("llama-3.3-70b")
DEEPSEEK_V3 = checkpoint_of("deepseek-v3")
# Meta's own FP8 checkpoint uses a method that vLLM has deprecated; this is one in plain fp8.
LLAMA_405B_FP8 = Checkpoint(
    replace(
        checkpoint_of("llama-3.1-405b-fp8").shape,
        quantization=Quantization(method="fp8", weight_bits=8),
    )
)


def spec_of(**spec: Any) -> InferenceDeploymentSpec:
    """A spec with a workload of 32k tokens; `workload` and `placement` are added to, all other
    fields replaced."""
    workload = {"maxModelLen": 32768, **spec.pop("workload", {})}
    source = {"inline": {"config": {"model_type": "llama"}}}
    return parse_spec({"model": {"source": source}, "workload": workload, **spec})


def decide_on(nodes: list[Raw], checkpoint: Checkpoint = LLAMA_70B, **how: Any) -> Decision:
    """What is decided for a checkpoint on these nodes; `how` is of the snapshot (pods,
    reservations, declared_pools), of the request (keep, held), or of the spec."""
    fleet = {key: how.pop(key) for key in ("pods", "reservations", "declared_pools") if key in how}
    return decide_among(pools_of(nodes, **fleet), checkpoint, **how)


def pools_of(nodes: list[Raw], **fleet: Any) -> tuple[Pool, ...]:
    """The pools of these nodes; `fleet` is what else is of the snapshot."""
    return build_pools(snapshot_of(nodes, **fleet), CATALOG, excluding=OWNER)


def decide_among(pools: Sequence[Pool], checkpoint: Checkpoint = LLAMA_70B, **how: Any) -> Decision:
    """What is decided on these pools; `how` is of the request (keep, secondary, ...) or the
    spec."""
    of_request = (
        "keep", "held", "failed_starts", "kept_adjustments", "secondary", "placed_for",
        "has_leader_worker_set",
        "has_compute_domains", "channel_pools",
    )  # fmt: skip
    request = {key: how.pop(key) for key in of_request if key in how}
    return decide(Request(OWNER, spec_of(**how), checkpoint, **request), pools, CATALOG)


def grow(pool: Pool, nodes: int) -> Pool:
    """The pool as if an autoscaler could add so many nodes, none of them promised to anybody."""
    accelerator = pool.accelerator
    usual = accelerator.gpus_per_node if accelerator and not pool.nodes else None
    counts = replace(pool.nodes.counts, largest_node=usual or pool.largest_node)
    grown = replace(counts, to_come=as_blocks({counts.largest_node: nodes}))
    return replace(pool, growth=nodes, nodes=PoolNodes(grown, lambda: list(pool.nodes)))


def by_pool(decision: Decision) -> dict[str, Candidate]:
    """The candidates by their pool's name."""
    return {candidate.pool.name: candidate for candidate in decision.candidates}


def chosen(decision: Decision) -> Option:
    """The option taken."""
    assert decision.chosen is not None, decision.message
    return decision.chosen


def taken(decision: Decision) -> tuple[str, int, int]:
    """Pool, tensor-parallel size and replicas."""
    option = chosen(decision)
    return option.pool.name, option.parallelism.tensor, option.replicas


def reason_of(decision: Decision, pool: str) -> tuple[Verdict, str]:
    """What became of a pool, and why."""
    candidate = by_pool(decision)[pool]
    return candidate.verdict, candidate.reason


def declared(name: str, selector: dict[str, str], **spec: Any) -> DeclaredPool:
    """A pool as a platform team declares it; `labels` are those of the object."""
    labels = spec.pop("labels", {})
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeSelector": selector, **spec},
    }
    pool = read_declared_pool(body)
    assert pool is not None
    return pool


def full(*names: str, gpus: int = 8, vendor: str = "nvidia") -> tuple[GpuPod, ...]:
    """Pods of others that hold so many GPUs of each node."""
    pods = (
        read_gpu_pod(gpu_pod_body(f"other-{name}", node=name, gpus={vendor: gpus}))
        for name in names
    )
    return tuple(pod for pod in pods if pod is not None)


def priced(cost: str, labels: dict[str, str], name: str) -> tuple[Raw, DeclaredPool]:
    """A node of a pool that costs so much."""
    pool = declared(name, {"pool": name}, costPerGPUHour=cost)
    return nvidia_node(name, labels | {"pool": name}), pool
