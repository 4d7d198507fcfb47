"""Everything that the operator measures, and what becomes of it on /metrics."""

from prometheus_client import generate_latest

from tests.support.fleets.gpu_nodes import amd_node, gpu_pod_body, nvidia_node, snapshot_of
from tests.support.load.exposition import Series, read_series
from tests.support.specs.statuses import conditions, placement, scaling, status
from tonnage.api.conditions import StartPhase
from tonnage.catalog.load import load_catalog
from tonnage.controller.metrics.components import CorrectionsCollector
from tonnage.controller.metrics.registry import Metrics
from tonnage.controller.metrics.statuses import StatusMetrics
from tonnage.controller.workers import Result
from tonnage.engines.medium import Medium
from tonnage.fit.calibration.corrections import NO_CORRECTIONS, KnownCorrections
from tonnage.fit.model import Footprint
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.rights import PermissionTracker
from tonnage.kube.transport import Request
from tonnage.placement.reasons import RejectedReason
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.pods.starts import FinishedStart
from tonnage.telemetry.prometheus import QueryOutcome

CATALOG = load_catalog()


class InvalidCorrections:
    """Corrections: none, and one entry is invalid."""

    has_read = True
    invalid = 1

    def known(self) -> KnownCorrections:
        return NO_CORRECTIONS


class Measured:
    """Everything that can be measured, on a fleet of two pools."""

    def __init__(self, fleet: Fleet | None = None) -> None:
        self.book = StatusMetrics(frozenset(CATALOG.accelerators))
        self.fleet = fleet or two_pools()
        self.rights = PermissionTracker()
        self.metrics = Metrics(self.book, lambda: self.fleet, self.rights)

    def everything_happens(self) -> None:
        """Whatever is measured happens once."""
        self.metrics.queue.watch_depth(lambda: 3)
        self.metrics.queue.key_added()
        self.metrics.queue.key_retried()
        self.metrics.queue.key_waited(0.1)
        self.metrics.workers.watch(8, lambda: [1.0, 4.0], lambda: True)
        self.metrics.memory.watch(lambda: 40, {NODES.plural: lambda: 3})
        self.metrics.reconciles.reconciled(Result.ERROR, 0.2)
        self.metrics.reconciles.observe_terminal_error()
        self.metrics.reconciles.observe_panic()
        self.metrics.api.requested(Request("list", "GET", PODS, None, None), "200", 0.1)
        self.metrics.api.on_event("pods")
        self.metrics.api.changes_missed(NODES.plural, 2)
        self.metrics.syncs.fleet_listed.done()
        self.metrics.syncs.resynced.done()
        self.metrics.prometheus.asked(QueryOutcome.ANSWERED)
        seconds = {StartPhase.LOADING: 40.0}
        self.metrics.starts.record(FinishedStart("amd-mi300x", Medium.HUB, seconds))
        self.metrics.registry.register(CorrectionsCollector(InvalidCorrections()))
        reported = status(
            conditions=conditions(Placed="False/InsufficientGPUs", Ready="False/NotPlaced"),
            placements=[placement("mi300x", measuredKvCacheTokens=900)],
            omittedCandidates={RejectedReason.TOO_SLOW: 1},
            scaling=scaling(3),
        )
        self.book.record(Key("chat", "llama"), reported)
        self.book.complete()

    def series(self) -> Series:
        """Everything on /metrics."""
        return read_series(self.text())

    def text(self) -> str:
        return generate_latest(self.metrics.registry).decode()

    def value(self, name: str, /, **labels: str) -> float:
        return self.series()[name, frozenset(labels.items())]

    def names(self) -> set[str]:
        return {name for name, _ in self.series()}


def two_pools() -> Fleet:
    """Two MI300X nodes, half of one taken, and one H100 node of which 2 GPUs are promised."""
    pod = read_gpu_pod(gpu_pod_body("other", node="amd-0", gpus={"amd": "4"}))
    assert pod is not None
    nodes = [amd_node("amd-0"), amd_node("amd-1"), nvidia_node("nvidia-0")]
    fleet = Fleet.of(snapshot_of(nodes, pods=(pod,)), CATALOG)
    (pool,) = (pool for pool in fleet.pools() if pool.resource == "nvidia.com/gpu")
    fleet.reserve(
        ("chat", "llama"), [Reservation(("chat", "llama"), "x", pool.name, Footprint(1), 2)]
    )
    return fleet
