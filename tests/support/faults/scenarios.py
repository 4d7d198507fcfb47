"""What users and clusters do to one object: a table of scenarios for tests of faults.

Each has a story of its own. A scenario is played undisturbed to know how it ends, and again with a
fault in it; `tests/faults` puts the faults.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.support.in_memory.approving import approve
from tests.support.in_memory.cluster import H100, L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import crashing, loading, ready, without_image
from tests.support.in_memory.jobs import download_fails
from tests.support.in_memory.weights import (
    COMMIT,
    NEWER,
    cached_spec,
    model_claim,
    prefetching_spec,
    read_from_hub,
    with_disks,
)
from tonnage.kube.kinds import ACCELERATOR_POOLS, DEPLOYMENTS, SERVICES
from tonnage.workloads.weights_job import POD_NAME

Change = Callable[[Cluster], object]

_LATER_SECONDS: Final = 60.0
"""Between what is there before and the change: pods are distinguished by when they were created."""


@dataclass(frozen=True)
class Scenario:
    """What is there before, and what somebody then does.

    `seconds` pass in the end, twice: a taken name is looked at again after so long, a plan that
    fails is given up after its deadline. `ends` is the reason of condition Ready by then;
    `serving` replicas answer at any moment, whatever fails. `bystanders` are objects that come to
    an end of their own.
    """

    groups: tuple[dict[str, Any], ...]
    before: tuple[Change, ...]
    change: Change
    seconds: float = 30.0
    ends: str = "ReplicasReady"
    serving: int = 0
    bystanders: tuple[str, ...] = ()

    async def prepare(self) -> Cluster:
        """A cluster at rest in which all is as it is before."""
        cluster = Cluster(*self.groups)
        for change in self.before:
            change(cluster)
            await cluster.settle()
        await cluster.wait(_LATER_SECONDS)
        return cluster

    async def play(self, cluster: Cluster) -> None:
        """Let it happen, and all come to rest."""
        self.change(cluster)
        await cluster.settle()
        await cluster.wait(self.seconds)
        await cluster.wait(self.seconds)  # a wait that a fault made begin later


def apply(name: str = "llama", **spec: Any) -> Change:
    """A user applies this spec."""
    return lambda cluster: cluster.apply(name, spec_of(**spec))


def _make_anew(cluster: Cluster) -> None:
    cluster.delete("llama")
    cluster.apply("llama", spec_of(replicas=2))


_PATIENT = {"fallback": {"after": "2h"}}


def _lose_nodes(cluster: Cluster) -> None:
    cluster.leave("mi300x")


_CHEAPER = {"policy": "WhenCheaperBy", "stabilizationWindow": "10m"}


def _price(dollars: str) -> Change:
    """Set the price of an H100 an hour; each object that holds GPUs is reconciled."""

    def change(cluster: Cluster) -> None:
        spec = {
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            "costPerGPUHour": dollars,
        }
        cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": "h100"}, "spec": spec})
        cluster.look_at_all()

    return change


def _delete(cluster: Cluster) -> None:
    cluster.delete("llama")


def _take_name(cluster: Cluster) -> None:
    template = {"metadata": {"labels": {}}, "spec": {"containers": []}}
    cluster.api.put(
        DEPLOYMENTS,
        {
            "metadata": {"name": "llama-mi300x", "namespace": NAMESPACE},
            "spec": {"replicas": 0, "template": template, "strategy": {"type": "Recreate"}},
        },
    )


def _free_name(cluster: Cluster) -> None:
    """No event comes: objects of others are not watched."""
    cluster.api.remove(DEPLOYMENTS, NAMESPACE, "llama-mi300x")


def _take_name_of_service(cluster: Cluster) -> None:
    """Before anything serves, as weights take minutes."""
    cluster.behaviours["llama"] = loading
    body = {"metadata": {"name": "llama", "namespace": NAMESPACE}, "spec": {"ports": []}}
    cluster.api.put(SERVICES, body)


def _free_name_of_service(cluster: Cluster) -> None:
    cluster.behaviours["llama"] = ready
    cluster.api.remove(SERVICES, NAMESPACE, "llama")


def _bad_image(cluster: Cluster) -> None:
    """An image that is not there."""
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if pod["spec"]["containers"][0]["image"] == "none" else ready(pod)
    )
    cluster.apply("llama", spec_of(replicas=2, engine={"vllm": {"image": "none"}}))


def _bad_pool(cluster: Cluster) -> None:
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if "h100" in pod["metadata"]["name"] else ready(pod)
    )
    placement = {"accelerators": ["h100-sxm-80gb"]}
    cluster.apply("llama", spec_of(replicas=2, placement=placement))


def _die_of_memory(cluster: Cluster) -> None:
    """A server that does not start with the settings that vLLM has by itself."""
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB."
    dies = crashing(message=words)
    cluster.behaviours["llama"] = lambda pod: (
        ready(pod)
        if "--max-num-batched-tokens=4096" in pod["spec"]["containers"][0]["args"]
        else dies(pod)
    )
    cluster.apply("llama", spec_of())


_SPREAD = {"spread": {"policy": "WhenShort"}}
_TWO_EACH = ({**MI300X, "gpusPerNode": 2}, {**H100, "gpusPerNode": 2})


def _lose_the_first(cluster: Cluster) -> None:
    cluster.api.remove(DEPLOYMENTS, NAMESPACE, "llama-mi300x")


def _edit_replicas(cluster: Cluster) -> None:
    """Somebody scales a Deployment that is not theirs."""
    body = cluster.deployment("llama-mi300x")
    body["spec"]["replicas"] = 5
    cluster.api.put(DEPLOYMENTS, body)


_GATEWAY = {"inferencePool": {"endpointPickerRef": {"name": "picker", "port": {"number": 9002}}}}


_APART = {"maxModelLen": 131072, "concurrency": 12, "longContext": {"above": 8192}}
_TOGETHER = {key: value for key, value in _APART.items() if key != "longContext"}

_NODE = {**H100, "resources": {"rdma/ib": "1k"}}
_TWO_NODES = {"model": "deepseek-v3", "placement": {"accelerators": ["h100-sxm-80gb"]}}


_RACK = {**_NODE, "count": 2, "labels": {"rack": "a", "nvidia.com/gpu.clique": "a.1"}}


def _install(cluster: Cluster) -> None:
    """An administrator installs LeaderWorkerSet."""
    cluster.has_leader_worker_set = True


def _connect_rack(cluster: Cluster) -> None:
    """An administrator installs the driver of ComputeDomains, and declares the rack."""
    _install(cluster)
    cluster.has_compute_domains = True
    spec = {"nodeSelector": {"rack": "a"}, "interconnect": {"computeDomain": True}}
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": "rack", "uid": "rack"}, "spec": spec})


def _publish(cluster: Cluster) -> None:
    """The Hub has the repository, and the namespace the claim."""
    cluster.administer(model_claim())
    cluster.hub.answer = read_from_hub()


def _push_and_upgrade(cluster: Cluster) -> None:
    cluster.hub.answer = read_from_hub(NEWER)
    cluster.hub.commits[COMMIT] = read_from_hub()
    cluster.apply("llama", cached_spec(rollout={"upgradedAt": "2026-11-27T12:00:00Z"}))


def _refuse_download(cluster: Cluster) -> None:
    cluster.behaviours[POD_NAME] = lambda pod: download_fails("the token is refused", 3)
    cluster.apply("llama", cached_spec())


def _load_from_hub(cluster: Cluster) -> None:
    spec = cached_spec()
    del spec["model"]["cache"]
    cluster.apply("llama", spec)


def _cache(cluster: Cluster) -> None:
    cluster.apply("llama", cached_spec())


def _declare_disks(cluster: Cluster) -> None:
    """The Hub has the repository, and the nodes have disks for weights."""
    _publish(cluster)
    with_disks(cluster=cluster)


def _prefetch(count: int) -> Change:
    return lambda cluster: cluster.apply("llama", prefetching_spec(count))


def _refuse_prefetch(cluster: Cluster) -> None:
    cluster.behaviours[POD_NAME] = lambda pod: download_fails("the disk is full", 3)
    cluster.apply("llama", prefetching_spec(1))


_THREE = {**MI300X, "count": 3}
_ROLL = {"engine": {"vllm": {"maxNumSeqs": 77}}}
_FULL = {**MI300X, "gpusPerNode": 2}

SCENARIOS: Final = {
    "create": Scenario((MI300X, H100), (), apply(replicas=2)),
    "create without capacity for all": Scenario(
        (_FULL,), (), apply(replicas=3), ends="InsufficientGPUs"
    ),
    "re-plan to another pool": Scenario(
        (L40S, H100),
        (apply(placement={"accelerators": ["l40s"]}),),
        apply(placement={"accelerators": ["h100-sxm-80gb"]}),
        serving=1,
    ),
    "roll with spare GPUs": Scenario(
        (MI300X,), (apply(replicas=2),), apply(replicas=2, **_ROLL), serving=2
    ),
    "roll on a full pool": Scenario(
        (_FULL,), (apply(replicas=2),), apply(replicas=2, **_ROLL), serving=1
    ),
    "roll to larger replicas on a full pool": Scenario(
        (L40S,),
        (apply(replicas=4),),
        apply(replicas=4, workload={"concurrency": 800}),
        ends="InsufficientGPUs",
    ),
    "scale up": Scenario((MI300X,), (apply(),), apply(replicas=4), serving=1),
    "scale down": Scenario((MI300X,), (apply(replicas=4),), apply(replicas=1), serving=1),
    "scale to zero": Scenario(
        (MI300X,), (apply(replicas=2),), apply(replicas=0), ends="ScaledToZero"
    ),
    "scale a refused spec to zero": Scenario(
        (MI300X,),
        (apply(replicas=2),),
        apply(replicas=0, placement={"accelerators": ["no-such-card"]}),
        ends="InvalidSpec",
    ),
    "scale down on a pool that is gone": Scenario(
        (MI300X,),
        (apply(replicas=3, placement=_PATIENT), _lose_nodes),
        apply(replicas=1, placement=_PATIENT),
        ends="InsufficientGPUs",
    ),
    "leave a pool whose nodes are gone": Scenario((MI300X, H100), (apply(),), _lose_nodes, 700.0),
    "wait for nodes that may come back": Scenario(
        (MI300X, H100),
        (apply(placement=_PATIENT),),
        _lose_nodes,
        ends="InsufficientGPUs",
    ),
    "use nodes that are given back": Scenario(
        (MI300X,),
        (lambda cluster: cluster.cordon("mi300x"), apply(replicas=2)),
        lambda cluster: cluster.cordon("mi300x", cordoned=False),
    ),
    "move to a cheaper pool": Scenario(
        (MI300X, H100),
        (_price("0.50"), apply(placement={"rebalance": _CHEAPER})),
        _price("9"),
        700.0,
        serving=1,
    ),
    "approve the first plan": Scenario((MI300X,), (apply(approval="Manual"),), approve),
    "approve a move": Scenario(
        (MI300X, H100),
        (
            apply(approval="Manual", placement={"accelerators": ["h100-sxm-80gb"]}),
            approve,
            apply(approval="Manual", placement={"accelerators": ["mi300x"]}),
        ),
        approve,
        serving=1,
    ),
    "go back from a bad image": Scenario(
        (_FULL,), (apply(replicas=2),), _bad_image, 4000.0, ends="RolledBack", serving=1
    ),
    "go back to the pool before": Scenario(
        (MI300X, H100),
        (apply(replicas=2, placement={"accelerators": ["mi300x"]}),),
        _bad_pool,
        4000.0,
        ends="RolledBack",
        serving=2,
    ),
    "start otherwise after out of memory": Scenario((H100,), (), _die_of_memory),
    "pause a change": Scenario(
        (MI300X,),
        (apply(replicas=2),),
        apply(replicas=2, rollout={"paused": True}, **_ROLL),
        ends="RolloutPaused",
        serving=2,
    ),
    "spread over two pools": Scenario(_TWO_EACH, (), apply(replicas=4, placement=_SPREAD)),
    "roll what is spread": Scenario(
        _TWO_EACH,
        (apply(replicas=4, placement=_SPREAD),),
        apply(replicas=4, placement=_SPREAD, **_ROLL),
        serving=3,
    ),
    "give back what is spread": Scenario(
        _TWO_EACH,
        (apply(replicas=4, placement=_SPREAD),),
        apply(replicas=2, placement=_SPREAD),
        serving=2,
    ),
    "give back the first placement": Scenario(
        _TWO_EACH,
        (
            lambda cluster: cluster.occupy("mi300x-0", 2),
            apply(replicas=2, placement=_SPREAD),
            lambda cluster: cluster.free("mi300x-0"),
            apply(replicas=4, placement=_SPREAD),
        ),
        apply(replicas=2, placement=_SPREAD),
        serving=2,
    ),
    "spread no more": Scenario(
        (MI300X, {**H100, "gpusPerNode": 2}),
        (
            lambda cluster: cluster.occupy("mi300x-0", 6),
            apply(replicas=4, placement=_SPREAD),
            lambda cluster: cluster.free("mi300x-0"),
        ),
        apply(replicas=4),
        serving=4,
    ),
    "lose the first of two Deployments": Scenario(
        _TWO_EACH, (apply(replicas=4, placement=_SPREAD),), _lose_the_first, serving=2
    ),
    "serve on two nodes of a rack": Scenario((_RACK,), (_connect_rack,), apply(**_TWO_NODES)),
    "leave a rack for one node": Scenario(
        (_RACK, MI300X),
        (_connect_rack, apply(**_TWO_NODES)),
        apply(model="deepseek-v3", placement={"accelerators": ["mi300x"]}),
        serving=1,
    ),
    "serve on two nodes": Scenario(({**_NODE, "count": 2},), (_install,), apply(**_TWO_NODES)),
    "roll on two nodes with nodes to spare": Scenario(
        ({**_NODE, "count": 4},),
        (_install, apply(**_TWO_NODES)),
        apply(**_TWO_NODES, **_ROLL),
    ),
    "roll two replicas on two nodes each": Scenario(
        ({**_NODE, "count": 4},),
        (_install, apply(replicas=2, **_TWO_NODES)),
        apply(replicas=2, **_TWO_NODES, **_ROLL),
        serving=1,
    ),
    "pause a change on two nodes": Scenario(
        ({**_NODE, "count": 4},),
        (_install, apply(replicas=2, **_TWO_NODES)),
        apply(replicas=2, rollout={"paused": True}, **_TWO_NODES, **_ROLL),
        ends="RolloutPaused",
        serving=2,
    ),
    "scale to zero on two nodes": Scenario(
        ({**_NODE, "count": 2},),
        (_install, apply(**_TWO_NODES)),
        apply(replicas=0, **_TWO_NODES),
        ends="ScaledToZero",
    ),
    "roll on two nodes": Scenario(
        ({**_NODE, "count": 2},),
        (_install, apply(**_TWO_NODES)),
        apply(**_TWO_NODES, **_ROLL),
    ),
    "move from two nodes to one": Scenario(
        ({**_NODE, "count": 2}, MI300X),
        (_install, apply(**_TWO_NODES)),
        apply(model="deepseek-v3", placement={"accelerators": ["mi300x"]}),
        serving=1,
    ),
    "move from one node to two": Scenario(
        ({**_NODE, "count": 2}, MI300X),
        (_install, apply(model="deepseek-v3", placement={"accelerators": ["mi300x"]})),
        apply(**_TWO_NODES),
        serving=1,
    ),
    "lose one of two nodes": Scenario(
        ({**_NODE, "count": 3},),
        (_install, apply(**_TWO_NODES)),
        lambda cluster: cluster.leave("h100-0"),
    ),
    "delete what runs on two nodes": Scenario(
        ({**_NODE, "count": 2},), (_install, apply(**_TWO_NODES)), _delete
    ),
    "delete and make anew": Scenario((MI300X,), (apply(),), _make_anew),
    "ask for an InferencePool": Scenario((MI300X,), (), apply(gateway=_GATEWAY)),
    "take the request for it back": Scenario(
        (MI300X,), (apply(gateway=_GATEWAY),), apply(), serving=1
    ),
    "tell requests apart": Scenario((MI300X, L40S), (), apply(workload=_APART)),
    "tell requests of what runs apart": Scenario(
        (MI300X, L40S), (apply(workload=_TOGETHER),), apply(workload=_APART)
    ),
    "change both endpoints": Scenario(
        (MI300X, L40S), (apply(workload=_APART),), apply(workload=_APART, **_ROLL)
    ),
    "tell requests apart no more": Scenario(
        (MI300X, L40S), (apply(workload=_APART),), apply(workload=_TOGETHER)
    ),
    "adopt no endpoint of others": Scenario(
        (MI300X, L40S),
        (apply("llama-long"),),
        apply(workload=_APART),
        ends="NameConflict",
        bystanders=("llama-long",),
    ),
    "download before the first pod": Scenario((MI300X,), (_publish,), _cache),
    "download what runs already": Scenario(
        (MI300X,), (_publish, _load_from_hub), _cache, serving=1
    ),
    "download a newer commit": Scenario(
        (MI300X,), (_publish, _cache), _push_and_upgrade, serving=1
    ),
    "download no more": Scenario((MI300X,), (_publish, _cache), _load_from_hub, serving=1),
    "try a download again": Scenario(
        (MI300X,), (_publish,), _refuse_download, 700.0, ends="WeightsNotDownloaded"
    ),
    "delete what downloads": Scenario((MI300X,), (_publish, _refuse_download), _delete),
    "prefetch to two nodes": Scenario(
        (_THREE,), (_declare_disks, _prefetch(0)), _prefetch(2), 120.0, serving=1
    ),
    "prefetch no more": Scenario(
        (_THREE,), (_declare_disks, _prefetch(2)), _prefetch(0), serving=1
    ),
    "prefetch to another node": Scenario(
        (_THREE,),
        (_declare_disks, _prefetch(1)),
        lambda cluster: cluster.leave("mi300x-1"),
        120.0,
        serving=1,
    ),
    "try a prefetch again": Scenario(
        (_THREE,), (_declare_disks, _prefetch(0)), _refuse_prefetch, 3700.0, serving=1
    ),
    "delete what prefetches": Scenario((_THREE,), (_declare_disks, _prefetch(2)), _delete),
    "delete for good": Scenario((MI300X,), (apply(replicas=2),), _delete),
    "give way to who waits": Scenario(
        (_FULL,), (apply(replicas=2), apply("mistral", replicas=2)), _delete
    ),
    "adopt no Deployment of others": Scenario(
        (MI300X,), (_take_name,), apply(), ends="NameConflict"
    ),
    "adopt no Service of others": Scenario(
        (MI300X,), (_take_name_of_service,), apply(), ends="NameConflict"
    ),
    "take the name once it is free": Scenario((MI300X,), (_take_name, apply()), _free_name),
    "take the name of the Service once it is free": Scenario(
        (MI300X,), (_take_name_of_service, apply()), _free_name_of_service
    ),
    "put right what others edit": Scenario(
        (MI300X,), (apply(replicas=2),), _edit_replicas, serving=2
    ),
    "bad spec": Scenario(
        (MI300X,), (apply(),), apply(workload={"maxModelLen": -1}), ends="InvalidSpec", serving=1
    ),
}
