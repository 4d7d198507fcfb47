"""The state at a moment of the day: who has GPUs, and whose replicas are ready."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.simulator.gpu_site import Site, wanted_of
from tests.support.fleets.promises import Sight, gpus_of_node, gpus_of_pod, is_usable, owner_of
from tests.support.in_memory.controllers import serves
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import Object


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod that holds GPUs of a node."""

    uid: str
    owner: str
    node: str
    gpus: int
    ready: bool

    @property
    def pool(self) -> str:
        """The pool of its node."""
        return pool_of(self.node)


@dataclass(frozen=True, slots=True)
class Scene:
    """The site at rest; `wanted` replicas by object, `placed` the objects whose Placed is True.

    `silent` nodes are not heard of, those in service are neither silent nor being drained;
    `usable_gpus` are those of nodes where pods can start, by pool.
    """

    sight: Sight
    replicas: tuple[Replica, ...]
    wanted: Mapping[str, int]
    placed: frozenset[str]
    silent: frozenset[str]
    in_service: frozenset[str]
    usable_gpus: Mapping[str, int]

    def ready(self, owner: str) -> int:
        """Replicas of the object that answer."""
        return sum(replica.ready for replica in self.replicas if replica.owner == owner)

    def is_short(self, owner: str) -> bool:
        """Whether replicas of the object lack GPUs, or have those of a silent node."""
        mine = (replica for replica in self.replicas if replica.owner == owner)
        held = sum(replica.node not in self.silent for replica in mine)
        return held < self.wanted[owner] or owner not in self.placed


def look(site: Site) -> Scene:
    """The scene of now."""
    objects = site.api.objects(INFERENCE_DEPLOYMENTS)
    sight = Sight(site.api.objects(NODES), site.api.objects(PODS))
    bound = (pod for pod in sight.pods if pod["spec"].get("nodeName"))
    names = frozenset(node["metadata"]["name"] for node in sight.nodes)
    silent = frozenset(site.silent_since)
    return Scene(
        sight=sight,
        replicas=tuple(map(_read_replica, bound)),
        wanted={body["metadata"]["name"]: wanted_of(body) for body in objects},
        placed=frozenset(body["metadata"]["name"] for body in objects if _is_placed(body)),
        silent=silent,
        in_service=names - silent - site.draining,
        usable_gpus=_count_usable(sight.nodes),
    )


def pool_of(node: str) -> str:
    """The pool of a node by its name, `POOL-NUMBER`."""
    return node.rpartition("-")[0]


def _read_replica(pod: Object) -> Replica:
    return Replica(
        uid=pod["metadata"]["uid"],
        owner=owner_of(pod) or "",
        node=pod["spec"]["nodeName"],
        gpus=gpus_of_pod(pod),
        ready=serves(pod),
    )


def _is_placed(body: Object) -> bool:
    conditions = body.get("status", {}).get("conditions", [])
    return any(one["type"] == "Placed" and one["status"] == "True" for one in conditions)


def _count_usable(nodes: Iterable[Object]) -> Counter[str]:
    usable: Counter[str] = Counter()
    for node in filter(is_usable, nodes):
        usable[pool_of(node["metadata"]["name"])] += gpus_of_node(node)
    return usable
