"""The operator converges when the API server refuses requests, is slow or does not answer.

Each fault affects an object that is changed and one that is created. Their final state, and how
often the operator wrote for it, are compared with a run without faults. Errors that are retried
after a minute run in parallel, with their own operator and cluster, and are checked last.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import pytest
from rich.console import Console

from e2e.delivery.availability.trouble import DEADLINE, Troubled, get_into_trouble, impatient
from e2e.doubles.fault_proxy import (
    Call,
    Effect,
    Fault,
    FaultProxy,
    Where,
    all_but_the_lease,
    all_calls,
    in_turn,
    late,
    refused,
    silent,
    writes,
)
from e2e.harness.admin import SLOW, Admin
from e2e.harness.operator_process import OperatorProcess, uninstall
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.end_state import everything, summary
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from tests.support.load.exposition import read_series

NAMES = ("changed", "created")
SLACK = 20.0
"""Seconds by which a busy machine may notice a deadline late: fewer than the 30 after which a
request without an answer ends by itself."""

MINUTE = 300.0
"""Seconds for what comes again after 60 or 70, and up to a fifth more. After 600 the operator
reconciles everything again."""

LIST_REVOKED = (
    'pods is forbidden: User "tonnage" cannot list resource "pods" in API group ""'
    " at the cluster scope"
)


@pytest.fixture(scope="module")
def proxy(control_plane: Stack) -> Iterator[FaultProxy]:
    with FaultProxy(control_plane.access) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def shared_operator(
    control_plane: Stack,
    installed: Admin,
    proxy: FaultProxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorProcess]:
    process = impatient(control_plane, tmp_path_factory.mktemp("operator"), proxy)
    process.start()
    yield process
    process.close()


@dataclass(frozen=True)
class Outcome:
    """What two objects became, and how many writes that took."""

    children: dict[str, list[str]]
    summary: dict[str, object]
    writes: int


@pytest.fixture
def served(fleet: UseFleet, user: User, operator: OperatorProcess) -> User:
    """A user with the first of two objects, which serves."""
    fleet("mixed")
    user.admin.until("the operator to lead", lambda: operator.leads, timeout=SLOW)
    user.apply(inference("changed", "llama-3.1-8b"))
    user.wait_ready("changed", timeout=SLOW)
    return user


@pytest.fixture
def begun(served: User) -> User:
    """The same, with all Events written: writes can be counted from now on."""
    served.await_quiet()
    return served


def act(user: User) -> None:
    """What a user does whatever the proxy."""
    user.apply(inference("created", "llama-3.3-70b"))
    user.apply(inference("changed", "llama-3.1-8b", max_model_len=8192))


def outcome(user: User, since: int) -> Outcome:
    """Wait for both to serve, and tell how it came about."""
    for name in NAMES:
        user.wait_ready(name, timeout=SLOW)
    user.await_quiet()
    user.admin.until("the pods that were replaced to be gone", lambda: stays(user), timeout=SLOW)
    return Outcome(
        everything(user.admin, user.namespace),
        summary(user, NAMES),
        len(writes_of_objects(user, since)),
    )


def stays(user: User) -> bool:
    """Whether no pod is on its way out."""
    return all("deletionTimestamp" not in pod["metadata"] for pod in user.admin.items("pods"))


def writes_of_objects(user: User, since: int) -> list[str]:
    """Writes to the user's objects and their children at the API server, without Events."""
    written = user.operator_writes(since)
    return [write for write in written if user.namespace in write and "/events" not in write]


@pytest.fixture(scope="module")
def calm_days() -> list[Outcome]:
    """Filled by the first test that needs it: a calm day takes its time, too."""
    return []


@pytest.fixture
def calm(calm_days: list[Outcome], begun: User) -> Outcome:
    """The same without proxy."""
    if not calm_days:
        since = begun.admin.audit_mark()
        act(begun)
        calm_days.append(outcome(begun, since))
        for name in NAMES:
            begun.admin.delete("infd", name)
        # A cluster whose CRDs are new collects no garbage of theirs for half a minute, and an
        # object whose name's children are another's is refused meanwhile.
        for kind in ("deployments", "services"):
            for child in begun.admin.items(kind):
                begun.admin.delete(kind, child["metadata"]["name"])
        begun.admin.wait_items("pods", lambda pods: not pods, timeout=SLOW)
        begun.apply(inference("changed", "llama-3.1-8b"))
        begun.wait_ready("changed", timeout=SLOW)
        begun.await_quiet()
    return calm_days[0]


def value(operator: OperatorProcess, name: str, **labels: str) -> float:
    queue = {"name": "inferencedeployment", "controller": "inferencedeployment"}
    series = read_series(operator.metrics())
    return series.get((name, frozenset((labels or queue).items())), 0.0)


def assert_alive(operator: OperatorProcess) -> None:
    """No worker is beyond its deadline, and the process says of itself that it is well."""
    oldest = value(operator, "workqueue_longest_running_processor_seconds")
    assert oldest < DEADLINE + SLACK, f"a worker has been stuck for {oldest:.1f} s"
    with urllib.request.urlopen(f"http://{operator.address}/healthz", timeout=5) as answer:
        assert answer.status == 200


def names_hit(user: User, fault: Fault) -> set[str]:
    """Whose requests met the proxy."""
    paths = [call.path for call in fault.calls if f"/{user.namespace}/" in call.path]
    return {name for name in NAMES if any(f"/{name}" in path for path in paths)}


@pytest.fixture(scope="module")
def troubled(
    empty_stack: Stack,
    platform: Admin,
    operator_namespace: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Future[Troubled]]:
    """They run in another cluster, in parallel with the other tests."""
    with ExitStack() as ends:
        ends.callback(uninstall, platform)
        user = User(platform, ends.enter_context(platform.fresh_namespace("chat")))
        proxy = ends.enter_context(FaultProxy(empty_stack.access))
        operator = impatient(empty_stack, tmp_path_factory.mktemp("troubled"), proxy)
        ends.callback(operator.close)
        executor = ends.enter_context(ThreadPoolExecutor(1))
        yield executor.submit(get_into_trouble, user, operator, proxy)


FAULTS: dict[str, tuple[Where, Effect]] = {
    "429 with Retry-After": (
        all_but_the_lease,
        refused(429, "TooManyRequests", "too many requests, please try again later", 1),
    ),
    "500 and 504 in turn": (
        all_but_the_lease,
        in_turn(
            refused(500, "InternalError", "etcdserver: leader changed"),
            refused(504, "Timeout", "the server was unable to return a response in time"),
        ),
    ),
    "409": (writes, refused(409, "Conflict", "the object has been modified; please apply again")),
    "half-open connections": (all_but_the_lease, silent()),
    "writes that are answered 30 s late": (writes, late(30)),
}


PAUSES = {"429 with Retry-After": 0.9}
"""Seconds that go by at least before the same is asked again: that the server wished for 1."""


def shortest_pause(fault: Fault) -> float:
    """Between two times at which one of the objects was asked for."""
    asked = {name: [call.at for call in fault.calls if f"/{name}" in call.path] for name in NAMES}
    return min(later - at for times in asked.values() for at, later in pairwise(times))


@pytest.mark.usefixtures("troubled")  # what needs a minute begins now, and is looked at last
@pytest.mark.parametrize("name", FAULTS)
def test_the_operator_retries_during_a_fault_and_converges_after_it(
    name: str, calm: Outcome, begun: User, operator: OperatorProcess, proxy: FaultProxy
) -> None:
    where, effect = FAULTS[name]
    retries = value(operator, "workqueue_retries_total")
    since = begun.admin.audit_mark()

    def both_were_retried() -> bool:
        assert_alive(operator)
        again = value(operator, "workqueue_retries_total") - retries
        return again >= 4 and names_hit(begun, fault) == set(NAMES)

    with proxy.inject(where, effect) as fault:
        act(begun)
        begun.admin.until(
            "both to be retried", both_were_retried, timeout=SLOW, describe=lambda: str(operator)
        )
    result = outcome(begun, since)
    assert_alive(operator)
    figures = f"{len(fault.calls)} calls met it, {result.writes} writes ({calm.writes} in calm)"
    Console().print(f"\n{name}: {figures}")
    assert (result.children, result.summary) == (calm.children, calm.summary)
    assert len(fault.calls) < 100
    assert name not in PAUSES or shortest_pause(fault) > PAUSES[name]
    # How many transitions of a status get an Event depends on timing, also without faults.
    assert result.writes <= 2 * calm.writes + len([call for call in fault.calls if call.is_write])


def test_a_child_deleted_without_a_watch_event_is_recreated(
    fleet: UseFleet, user: User, operator: OperatorProcess, proxy: FaultProxy
) -> None:
    fleet("tiny")
    for name in ("stays", "goes"):
        user.apply(inference(name, "llama-3.1-8b"))
        user.wait_ready(name, timeout=SLOW)
    user.await_quiet()
    (lost,) = user.children("deployments", "stays")
    assert proxy.mute_watches() > 0
    user.admin.delete("deployments", lost["metadata"]["name"])
    user.admin.delete("infd", "goes")
    user.forget("goes")
    assert proxy.end_watches(410) > 0
    user.admin.wait_items(
        "deployments",
        lambda services: (
            [each["metadata"]["name"] for each in services] == [lost["metadata"]["name"]]
        ),
        timeout=SLOW,
    )
    user.wait_ready("stays", timeout=SLOW)
    known = {"kind": "inferencedeployments"}
    user.admin.until(
        "the deleted object to be forgotten",
        lambda: value(operator, "tonnage_known_objects", **known) == 1,
        timeout=SLOW,
    )


def test_a_process_that_cannot_renew_its_lease_exits_and_the_next_one_continues(
    served: User, operator: OperatorProcess, proxy: FaultProxy
) -> None:
    with proxy.inject(all_calls, silent()):
        act(served)
        await_end(served, operator)
    goes_on(served, operator)


def test_objects_whose_pods_cannot_be_listed_have_unknown_readiness(
    begun: User, operator: OperatorProcess, proxy: FaultProxy
) -> None:
    """The watch of the pods is lost, and the list that it asks for is denied."""
    before = begun.pods("changed")

    def lists_pods(call: Call) -> bool:
        return call.method == "GET" and call.path == "/api/v1/pods"

    with proxy.inject(lists_pods, refused(403, "Forbidden", LIST_REVOKED)):
        assert proxy.end_watches(410) > 0
        status = begun.wait("changed", has("Ready", "Unknown", "Forbidden"), timeout=SLOW)
        assert condition(status, "Available")["status"] == "True"
        assert status["placements"]
        assert begun.pods("changed") == before
    begun.wait_ready("changed", timeout=MINUTE)
    assert_alive(operator)


def test_a_watch_error_other_than_410_ends_the_process(
    served: User, operator: OperatorProcess, proxy: FaultProxy
) -> None:
    assert proxy.end_watches(500) > 0
    act(served)
    await_end(served, operator)
    goes_on(served, operator)


def await_end(user: User, operator: OperatorProcess) -> None:
    """The process exits soon, with a non-zero exit code."""
    began = time.monotonic()
    user.admin.until("its end", lambda: not operator.running, timeout=SLOW)
    Console().print(f"\nended after {time.monotonic() - began:.1f} s")
    assert operator.exit_code == 1


def goes_on(user: User, operator: OperatorProcess) -> None:
    operator.start()
    for name in NAMES:
        user.wait_ready(name, timeout=SLOW)


def test_errors_with_a_long_retry_are_reported_at_once_and_recover(
    troubled: Future[Troubled],
) -> None:
    trouble = troubled.result()
    assert "exceeded quota" in condition(trouble.statuses["beyond-quota"], "Accepted")["message"]
    assert (
        "may not patch deployments.apps"
        in condition(trouble.statuses["denied"], "Ready")["message"]
    )
    for name in ("concerned", "denied", "beyond-quota"):
        status = trouble.user.wait_ready(name, timeout=MINUTE)
        ready = datetime.fromisoformat(condition(status, "Ready")["lastTransitionTime"])
        seconds = ready.timestamp() - trouble.since
        Console().print(f"\n{name}: ready {seconds:.0f} s after its trouble was over")
        assert seconds < MINUTE
    assert_alive(trouble.operator)
    trouble.user.assert_untouched()
