"""A Service before simulated replicas: who gets the requests when replicas come and go."""

from tests.support.fleets.placing import CATALOG, LLAMA_8B
from tests.support.load.replica_capacity import ReplicaCapacity, replica_capacity
from tests.support.load.simulated_service import SimulatedService
from tonnage.fit.model import EngineOptions, Parallelism

OPTIONS = EngineOptions(CATALOG.default_release, max_model_len=8192)
CAPACITY = replica_capacity(LLAMA_8B, "l40s", Parallelism(), OPTIONS, 500, 100)


def ready(*names: str) -> dict[str, ReplicaCapacity]:
    return dict.fromkeys(names, CAPACITY)


def service_of(*names: str) -> SimulatedService:
    service = SimulatedService()
    service.use(ready(*names))
    return service


def taken(service: SimulatedService) -> dict[str, int]:
    return {name: one.running + one.waiting for name, one in service.replicas.items()}


def test_requests_go_evenly_to_ready_replicas() -> None:
    service = service_of("a", "b", "c")
    for _ in range(3):
        service.advance(0.1, 4)
    assert taken(service) == {"a": 4, "b": 4, "c": 4}


def test_a_new_replica_starts_empty_and_gets_its_share() -> None:
    service = service_of("a")
    service.advance(0.1, 10)
    service.use(ready("a", "b"))
    service.advance(0.1, 10)
    assert taken(service) == {"a": 15, "b": 5}


def test_a_removed_replica_finishes_its_requests_and_gets_no_more() -> None:
    service = service_of("a", "b")
    service.advance(0.1, 10)
    service.use(ready("b"))
    assert service.in_flight == 10
    ended = [service.advance(1.0, 0) for _ in range(60)]
    assert sum(len(served["a"].finished) for served in ended if "a" in served) == 5
    assert service.in_flight == 0
    assert "a" not in ended[-1], "a replica that is empty is gone"


def test_requests_are_held_while_no_replica_is_ready() -> None:
    service = service_of()
    service.advance(1.0, 7)
    assert (service.held, service.in_flight) == (7, 0)
    service.use(ready("a"))
    service.advance(0.1, 0)
    assert (service.held, taken(service)) == (0, {"a": 7})
