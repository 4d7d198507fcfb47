"""Who was promised which GPUs, counted from the API objects alone, apart from the operator's code.

A replica is promised by `spec.replicas` of a Deployment whose InferenceDeployment is there. It has
its GPUs when a pod of it is bound, otherwise it is outstanding and needs a block of free GPUs on
one usable node that its pods' affinity admits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.fleets.node_affinity import admits
from tonnage.api.names import INFERENCE_DEPLOYMENT, LABEL_OWNER, LABEL_PLACEMENT
from tonnage.kube.protocol import Object


@dataclass(frozen=True, slots=True)
class Promise:
    """What one Deployment promises: so many replicas of so many GPUs on these nodes."""

    deployment: str
    owner: str
    placement: str
    replicas: int
    gpus: int
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sight:
    """Nodes and pods as somebody saw them."""

    nodes: Sequence[Object]
    pods: Sequence[Object]

    def free(self, leaving_out: str | None = None) -> dict[str, int]:
        """Free GPUs of the usable nodes; the pods of one owner can be left out."""
        held = self.held(leaving_out)
        return {
            name: gpus_of_node(node) - held[name]
            for node in self.nodes
            for name in [node["metadata"]["name"]]
            if is_usable(node)
        }

    @property
    def has_ending(self) -> bool:
        """Whether any pod is on its way out."""
        return any("deletionTimestamp" in pod["metadata"] for pod in self.pods)

    def free_in_the_end(self, promises: Sequence[Promise], leaving_out: str) -> dict[str, int]:
        """Free GPUs of the usable nodes once the pods are gone that no promise is about any more:
        those of an older split or placement, which give way to their successors."""
        free = self.free(leaving_out)
        promised = {(one.owner, one.placement, one.gpus) for one in promises}
        owners = {one.owner for one in promises} - {leaving_out}
        for pod in self.pods:
            node, owner = pod["spec"].get("nodeName"), owner_of(pod)
            placement = pod["metadata"].get("labels", {}).get(LABEL_PLACEMENT)
            goes = owner in owners and (owner, placement, gpus_of_pod(pod)) not in promised
            if goes and node in free:
                free[node] += gpus_of_pod(pod)
        return free

    def held(self, leaving_out: str | None = None) -> Counter[str]:
        """GPUs by node that bound pods hold, those that end included until they are gone."""
        by_node: Counter[str] = Counter()
        for pod in self.pods:
            if leaving_out is None or owner_of(pod) != leaving_out:
                by_node[pod["spec"].get("nodeName") or ""] += gpus_of_pod(pod)
        del by_node[""]
        return by_node

    def bound(self, promise: Promise, among: Iterable[str] | None = None) -> int:
        """Replicas that have their GPUs (on these nodes): pods of their size.

        One that ends still counts, as it holds the GPUs of its successor; where nothing new can
        start it does not, and its successor needs a place elsewhere.
        """
        wanted = promise.nodes if among is None else frozenset(among)
        usable = {node["metadata"]["name"] for node in self.nodes if is_usable(node)}
        return sum(
            owner_of(pod) == promise.owner
            and pod["metadata"]["labels"].get(LABEL_PLACEMENT) == promise.placement
            and pod["spec"].get("nodeName") in wanted
            and gpus_of_pod(pod) == promise.gpus
            and ("deletionTimestamp" not in pod["metadata"] or pod["spec"]["nodeName"] in usable)
            for pod in self.pods
        )

    def outstanding(self, promise: Promise) -> int:
        """Replicas that have no GPUs yet."""
        return max(0, promise.replicas - self.bound(promise))


Block = tuple[int, frozenset[str]]
"""GPUs that are needed on one of these nodes."""


def read_promises(
    deployments: Iterable[Object], objects: Iterable[Object], nodes: Sequence[Object]
) -> list[Promise]:
    """The promises of all Deployments whose InferenceDeployment is there."""
    alive = {body["metadata"]["uid"] for body in objects}
    return [
        Promise(
            deployment=body["metadata"]["name"],
            owner=body["metadata"]["labels"][LABEL_OWNER],
            placement=body["spec"]["template"]["metadata"]["labels"][LABEL_PLACEMENT],
            replicas=body["spec"]["replicas"],
            gpus=gpus_of_pod({"spec": body["spec"]["template"]["spec"]}),
            nodes=frozenset(_admitted(body["spec"]["template"]["spec"], nodes)),
        )
        for body in deployments
        if any(
            owner["kind"] == INFERENCE_DEPLOYMENT and owner["uid"] in alive
            for owner in body["metadata"].get("ownerReferences", [])
        )
    ]


def can_pack(blocks: Iterable[Block], free: Mapping[str, int]) -> bool:
    """Whether each block finds a node of its own choice; every way of packing is tried."""
    waiting = sorted(blocks, key=lambda block: (-block[0], sorted(block[1])))
    return _pack(tuple(waiting), dict(free))


def pack_largest_first(blocks: Iterable[Block], free: Mapping[str, int]) -> list[Block]:
    """The blocks that can be placed when the largest go first, each onto the fullest node."""
    left, packed = dict(free), []
    for block in sorted(blocks, key=lambda block: (-block[0], sorted(block[1]))):
        size, nodes = block
        fitting = [name for name in nodes if left.get(name, 0) >= size]
        if fitting:
            left[min(fitting, key=lambda name: (left[name], name))] -= size
            packed.append(block)
    return packed


def is_usable(node: Object) -> bool:
    """Whether pods can start there."""
    conditions = node["status"].get("conditions", [])
    ready = all(one["status"] == "True" for one in conditions if one["type"] == "Ready")
    return ready and not node["spec"].get("unschedulable")


def gpus_of_node(node: Object) -> int:
    """GPUs for pods."""
    allocatable = node["status"]["allocatable"].items()
    return sum(int(count) for resource, count in allocatable if resource.endswith(".com/gpu"))


def gpus_of_pod(pod: Object) -> int:
    """GPUs that the pod asks for; 0 when it has finished."""
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    limits = (one.get("resources", {}).get("limits", {}) for one in pod["spec"]["containers"])
    items = (item for limit in limits for item in limit.items())
    return sum(int(count) for resource, count in items if resource.endswith(".com/gpu"))


def owner_of(pod: Object) -> str | None:
    """Name of the InferenceDeployment that the pod belongs to."""
    owner: str | None = pod["metadata"].get("labels", {}).get(LABEL_OWNER)
    return owner


def _pack(blocks: tuple[Block, ...], left: dict[str, int]) -> bool:
    if not blocks:
        return True
    size, nodes = blocks[0]
    tried = set()
    for name in sorted(nodes, key=lambda name: (left.get(name, 0), name)):
        free = left.get(name, 0)
        kind = (free, frozenset(index for index, one in enumerate(blocks) if name in one[1]))
        if free < size or kind in tried:
            continue
        tried.add(kind)
        left[name] = free - size
        if _pack(blocks[1:], left):
            return True
        left[name] = free
    return False


def _admitted(pod: Object, nodes: Iterable[Object]) -> Iterable[str]:
    for node in nodes:
        if admits(node["metadata"].get("labels", {}), pod):
            yield node["metadata"]["name"]
