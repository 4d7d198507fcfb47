"""An API server that refuses, is slow or silent: nothing hangs, nothing storms, all is as without.

Each weather comes over an object that is changed and one that is created. What they end as, and how
often was written for it, is compared with the same on a calm day. What takes a minute to pass
begins before all that, with an operator and a cluster of its own, and is looked at last.
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
from pathlib import Path

import pytest
from rich.console import Console

from e2e.doubles.fault_proxy import (
    Call,
    Effect,
    Storm,
    WeatherProxy,
    Where,
    but_the_lease,
    everywhere,
    in_turn,
    late,
    refused,
    silent,
    writes,
)
from e2e.harness.admin import Admin
from e2e.harness.operator_process import OperatorProcess, install, uninstall
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.end_state import everything, summary
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from tests.support.exposition import read_series

NAMES = ("changed", "created")
DEADLINE = 3.0
"""Seconds for a reconcile, instead of 120: who waits for an answer that never comes ends sooner."""

SLACK = 3.0
"""Seconds by which a busy machine may notice a deadline late."""

MINUTE = 90.0
"""Seconds for what comes again after 60 or 70, and up to a fifth more."""

ROLE_REVOKED = (
    'deployments.apps "denied" is forbidden: User "tonnage" cannot patch resource "deployments"'
    ' in API group "apps" in the namespace "chat"'
)
"""The words of the authorizer of RBAC."""

LIST_REVOKED = (
    'pods is forbidden: User "tonnage" cannot list resource "pods" in API group ""'
    " at the cluster scope"
)


@pytest.fixture(scope="module")
def weather(control_plane: Stack) -> Iterator[WeatherProxy]:
    with WeatherProxy(control_plane.access) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def shared_operator(
    control_plane: Stack,
    installed: Admin,
    weather: WeatherProxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorProcess]:
    process = impatient(control_plane, tmp_path_factory.mktemp("operator"), weather)
    process.start()
    yield process
    process.close()


def impatient(stack: Stack, folder: Path, weather: WeatherProxy) -> OperatorProcess:
    """An operator that reaches the API server through the weather only."""
    environment = {
        "TONNAGE_RECONCILE_DEADLINE_SECONDS": f"{DEADLINE:g}",
        "TONNAGE_DRAIN_SECONDS": "2",
    }
    return OperatorProcess(stack, folder, environment=environment, server=weather.url)


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
    user.admin.until("the operator to lead", lambda: operator.leads)
    user.apply(inference("changed", "llama-3.1-8b"))
    user.wait_ready("changed")
    return user


@pytest.fixture
def begun(served: User) -> User:
    """The same, and all is told of it: writes can be counted from now on."""
    served.await_quiet()
    return served


def act(user: User) -> None:
    """What a user does whatever the weather."""
    user.apply(inference("created", "llama-3.3-70b"))
    user.apply(inference("changed", "llama-3.1-8b", max_model_len=8192))


def outcome(user: User, since: int) -> Outcome:
    """Wait for both to serve, and tell how it came about."""
    for name in NAMES:
        user.wait_ready(name, timeout=60)
    user.await_quiet()
    return Outcome(
        everything(user.admin, user.namespace),
        summary(user, NAMES),
        len(writes_of_objects(user, since)),
    )


def writes_of_objects(user: User, since: int) -> list[str]:
    """What reached the API server of the user's own: events are told beside, pools are others'."""
    written = user.operator_writes(since)
    return [write for write in written if user.namespace in write and "/events" not in write]


@pytest.fixture(scope="module")
def calm_days() -> list[Outcome]:
    """Filled by the first test that needs it: a calm day takes its time, too."""
    return []


@pytest.fixture
def calm(calm_days: list[Outcome], begun: User) -> Outcome:
    """The same without weather."""
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
        begun.admin.wait_items("pods", lambda found: not found, timeout=60)
        begun.apply(inference("changed", "llama-3.1-8b"))
        begun.wait_ready("changed")
        begun.await_quiet()
    return calm_days[0]


def value(operator: OperatorProcess, name: str, **labels: str) -> float:
    queue = {"name": "inferencedeployment", "controller": "inferencedeployment"}
    found = read_series(operator.metrics())
    return found.get((name, frozenset((labels or queue).items())), 0.0)


def assert_alive(operator: OperatorProcess) -> None:
    """No worker is beyond its deadline, and the process says of itself that it is well."""
    oldest = value(operator, "workqueue_longest_running_processor_seconds")
    assert oldest < DEADLINE + SLACK, f"a worker has been stuck for {oldest:.1f} s"
    with urllib.request.urlopen(f"http://{operator.address}/healthz", timeout=5) as answer:
        assert answer.status == 200


def names_met(user: User, storm: Storm) -> set[str]:
    """Whose requests met the weather."""
    paths = [call.path for call in storm.met if f"/{user.namespace}/" in call.path]
    return {name for name in NAMES if any(f"/{name}" in path for path in paths)}


@dataclass(frozen=True)
class Troubled:
    """Objects whose trouble is over, of which the operator learns a minute later.

    `told` are the statuses that they had in it, `since` is when it was over, in seconds since 1970.
    """

    user: User
    operator: OperatorProcess
    told: dict[str, Json]
    since: float


@pytest.fixture(scope="module")
def troubled(
    empty_stack: Stack,
    platform: Admin,
    operator_namespace: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Future[Troubled]]:
    """They get into it in another cluster, so that the other tests go on beside."""
    with ExitStack() as ends:
        ends.callback(uninstall, platform)
        user = User(platform, ends.enter_context(platform.fresh_namespace("chat")))
        weather = ends.enter_context(WeatherProxy(empty_stack.access))
        operator = impatient(empty_stack, tmp_path_factory.mktemp("troubled"), weather)
        ends.callback(operator.close)
        beside = ends.enter_context(ThreadPoolExecutor(1))
        yield beside.submit(get_into_trouble, user, operator, weather)


def get_into_trouble(user: User, operator: OperatorProcess, weather: WeatherProxy) -> Troubled:
    """A quota and a role are asked again after 60 s, a silent watch is given up after 70: all at
    once, so that they cost one minute."""
    install(user.admin)
    operator.start()
    user.admin.until("the operator to lead", lambda: operator.leads)
    for name in ("concerned", "denied"):
        user.apply(inference(name, "llama-3.1-8b"))
        user.wait_ready(name)
    none_more = {"hard": {"count/services": "2"}}
    metadata = {"name": "none-more"}
    user.admin.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": none_more}
    )
    user.admin.wait_for("resourcequotas", "none-more", lambda found: found.get("status"))

    def patches_denied(call: Call) -> bool:
        return call.is_write and f"/{user.namespace}/deployments/denied" in call.path

    with weather.storm(patches_denied, refused(403, "Forbidden", ROLE_REVOKED)):
        user.apply(inference("denied", "llama-3.1-8b", max_model_len=8192))
        user.apply(inference("beyond-quota", "llama-3.1-8b"))
        told = {
            "denied": user.wait("denied", has("Ready", "False", "Forbidden")),
            "beyond-quota": user.wait("beyond-quota", has("Accepted", "False", "ChildRefused")),
        }
    assert weather.mute_watches() > 0
    user.admin.delete("resourcequotas", "none-more")
    user.apply(inference("concerned", "llama-3.1-8b", max_model_len=8192))
    return Troubled(user, operator, told, time.time())


WEATHERS: dict[str, tuple[Where, Effect]] = {
    "429 with Retry-After": (
        but_the_lease,
        refused(429, "TooManyRequests", "too many requests, please try again later", 1),
    ),
    "500 and 504 in turn": (
        but_the_lease,
        in_turn(
            refused(500, "InternalError", "etcdserver: leader changed"),
            refused(504, "Timeout", "the server was unable to return a response in time"),
        ),
    ),
    "409": (writes, refused(409, "Conflict", "the object has been modified; please apply again")),
    "half-open connections": (but_the_lease, silent()),
    "writes that are answered 30 s late": (writes, late(30)),
}


PAUSES = {"429 with Retry-After": 0.9}
"""Seconds that go by at least before the same is asked again: that the server wished for 1."""


def shortest_pause(storm: Storm) -> float:
    """Between two times at which one of the objects was asked for."""
    asked = {name: [call.at for call in storm.met if f"/{name}" in call.path] for name in NAMES}
    return min(later - at for times in asked.values() for at, later in pairwise(times))


@pytest.mark.usefixtures("troubled")  # what needs a minute begins now, and is looked at last
@pytest.mark.parametrize("name", WEATHERS)
def test_in_this_weather_nothing_hangs_and_afterwards_all_is_as_without(
    name: str, calm: Outcome, begun: User, operator: OperatorProcess, weather: WeatherProxy
) -> None:
    where, effect = WEATHERS[name]
    retries = value(operator, "workqueue_retries_total")
    since = begun.admin.audit_mark()

    def both_were_retried() -> bool:
        assert_alive(operator)
        again = value(operator, "workqueue_retries_total") - retries
        return again >= 4 and names_met(begun, storm) == set(NAMES)

    with weather.storm(where, effect) as storm:
        act(begun)
        begun.admin.until(
            "both to be retried", both_were_retried, timeout=60, describe=lambda: str(operator)
        )
    found = outcome(begun, since)
    assert_alive(operator)
    figures = f"{len(storm.met)} calls met it, {found.writes} writes ({calm.writes} in calm)"
    Console().print(f"\n{name}: {figures}")
    assert (found.children, found.summary) == (calm.children, calm.summary)
    assert len(storm.met) < 100
    assert name not in PAUSES or shortest_pause(storm) > PAUSES[name]
    # How many turns of a status are told depends on when it is looked at, also on a calm day.
    assert found.writes <= 2 * calm.writes + len([call for call in storm.met if call.is_write])


def test_what_was_deleted_while_no_watch_listened_is_put_right(
    fleet: UseFleet, user: User, operator: OperatorProcess, weather: WeatherProxy
) -> None:
    fleet("tiny")
    for name in ("stays", "goes"):
        user.apply(inference(name, "llama-3.1-8b"))
        user.wait_ready(name)
    user.await_quiet()
    (lost,) = user.children("deployments", "stays")
    assert weather.mute_watches() > 0
    user.admin.delete("deployments", lost["metadata"]["name"])
    user.admin.delete("infd", "goes")
    user.forget("goes")
    assert weather.end_watches(410) > 0
    user.admin.wait_items(
        "deployments",
        lambda found: [each["metadata"]["name"] for each in found] == [lost["metadata"]["name"]],
    )
    user.wait_ready("stays")
    known = {"kind": "inferencedeployments"}
    user.admin.until(
        "the deleted object to be forgotten",
        lambda: value(operator, "tonnage_known_objects", **known) == 1,
    )


def test_a_lease_that_cannot_be_renewed_ends_the_process_and_the_next_one_goes_on(
    served: User, operator: OperatorProcess, weather: WeatherProxy
) -> None:
    with weather.storm(everywhere, silent()):
        act(served)
        await_end(served, operator)
    goes_on(served, operator)


def test_what_may_not_be_listed_any_more_is_neither_ready_nor_unready(
    begun: User, operator: OperatorProcess, weather: WeatherProxy
) -> None:
    """The watch of the pods is lost, and the list that it asks for is denied."""
    before = begun.pods("changed")

    def lists_pods(call: Call) -> bool:
        return call.method == "GET" and call.path == "/api/v1/pods"

    with weather.storm(lists_pods, refused(403, "Forbidden", LIST_REVOKED)):
        assert weather.end_watches(410) > 0
        status = begun.wait("changed", has("Ready", "Unknown", "Forbidden"))
        assert condition(status, "Available")["status"] == "True"
        assert status["placements"]
        assert begun.pods("changed") == before
    begun.wait_ready("changed", timeout=MINUTE)
    assert_alive(operator)


def test_a_watch_that_fails_for_another_cause_than_its_age_ends_the_process(
    served: User, operator: OperatorProcess, weather: WeatherProxy
) -> None:
    assert weather.end_watches(500) > 0
    act(served)
    await_end(served, operator)
    goes_on(served, operator)


def await_end(user: User, operator: OperatorProcess) -> None:
    """It ends by itself, soon, and as a failure that whoever started it sees."""
    began = time.monotonic()
    user.admin.until("its end", lambda: not operator.running, timeout=40)
    Console().print(f"\nended after {time.monotonic() - began:.1f} s")
    assert operator.exit_code == 1


def goes_on(user: User, operator: OperatorProcess) -> None:
    operator.start()
    for name in NAMES:
        user.wait_ready(name, timeout=60)


def test_what_needs_a_minute_is_told_at_once_and_has_recovered_after_it(
    troubled: Future[Troubled],
) -> None:
    found = troubled.result()
    assert "exceeded quota" in condition(found.told["beyond-quota"], "Accepted")["message"]
    assert "may not patch deployments.apps" in condition(found.told["denied"], "Ready")["message"]
    for name in ("concerned", "denied", "beyond-quota"):
        status = found.user.wait_ready(name, timeout=MINUTE)
        ready = datetime.fromisoformat(condition(status, "Ready")["lastTransitionTime"])
        seconds = ready.timestamp() - found.since
        Console().print(f"\n{name}: ready {seconds:.0f} s after its trouble was over")
        assert seconds < MINUTE
    assert_alive(found.operator)
    found.user.assert_untouched()
