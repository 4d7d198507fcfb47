"""Which plans were tried, and which of them failed."""

from collections.abc import Iterator, Mapping

from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT
from tonnage.kube.protocol import Object

Plan = tuple[str, ...]
"""What a replica runs as: placement, image and arguments."""


class Trials:
    """Kept from what is seen of pods and written into Deployments; a plan counts by object and
    generation of its spec."""

    def __init__(self) -> None:
        self.dying: set[str] = set()
        """Objects of which servers have died since the last `begin`."""
        self._tried: dict[str, Plan] = {}
        self._dead: set[tuple[str, int, Plan]] = set()

    def begin(self) -> None:
        """Start a new phase: deaths from now on are counted separately."""
        self.dying.clear()

    def note_death(self, pod: Object, generations: Mapping[str, int]) -> None:
        """The server of this pod has died."""
        name = pod["metadata"]["labels"][LABEL_OWNER]
        self.dying.add(name)
        self._dead.add((name, generations.get(name, 0), _plan_of(pod)))

    def note_written(self, name: str, generation: int, template: Object) -> Iterator[str]:
        """Record an object's template; return a violation where a failed one is tried again."""
        plan = _plan_of(template)
        if plan != self._tried.get(name) and (name, generation, plan) in self._dead:
            yield f"{name} tries again what died: {plan}"
        self._tried[name] = plan


def has_died(pod: Object) -> bool:
    """Whether the pod's server has ended and waits to be started again."""
    statuses = pod["status"].get("containerStatuses", [])
    return any("waiting" in one["state"] for one in statuses)


def _plan_of(pod: Object) -> Plan:
    (container,) = pod["spec"]["containers"]
    placement = pod["metadata"]["labels"][LABEL_PLACEMENT]
    return placement, container["image"], *container["args"]
