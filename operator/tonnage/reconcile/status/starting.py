"""What the replicas do that are not ready yet, in counts: a percentage would change the status with
every file that is loaded."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from tonnage.api.conditions import StartingReplicas, StartPhase
from tonnage.engines.registry import engine_named
from tonnage.reconcile.observation.observation import Observation

_WORDS: Final[Mapping[StartPhase, tuple[str, str]]] = {
    StartPhase.SCHEDULING: ("waits for a node", "wait for a node"),
    StartPhase.CREATING: ("creates its container", "create their containers"),
    StartPhase.INITIALIZING: ("runs its init containers", "run their init containers"),
    StartPhase.PULLING: ("pulls its image", "pull their image"),
    StartPhase.STARTING: ("starts {engine}", "start {engine}"),
    StartPhase.DOWNLOADING: ("downloads weights", "download weights"),
    StartPhase.LOADING: ("loads weights", "load weights"),
    StartPhase.COMPILING: ("warms up", "warm up"),
    StartPhase.PROBING: ("waits for its readiness probe", "wait for their readiness probe"),
}
"""Of one replica, and of several."""


def count_starts(observation: Observation) -> list[StartingReplicas]:
    """The replicas by phase, those first that have come farthest."""
    return [StartingReplicas(phase=phase, replicas=count) for phase, count in _count(observation)]


def describe_starts(observation: Observation) -> str:
    """What the replicas do, for example "1 loads weights, 2 pull their image"; empty where none has
    been starting for long."""
    engine = engine_named(observation.engine).title
    return ", ".join(
        f"{count} {_WORDS[phase][count > 1].format(engine=engine)}"
        for phase, count in _count(observation)
    )


def _count(observation: Observation) -> list[tuple[StartPhase, int]]:
    counts = Counter(start.phase for start in observation.starts.by_pod.values())
    return [(phase, counts[phase]) for phase in reversed(StartPhase) if counts[phase]]
