"""The operator dies, or does not hear the answer, at each write of each scenario.

A scenario with U writes makes 3U plans: a crash before the write, a crash after it, and a write
that is done and whose answer is lost. After each, a fresh operator must reach the state that an
undisturbed run reaches, with a bounded number of writes and nothing left over.
"""

import asyncio
from collections import Counter

import pytest

from tests.support.api_server.fake_api import Crash
from tests.support.faults.crash_plans import Plans, crashes, errors, play
from tests.support.faults.scenarios import SCENARIOS, Scenario
from tests.support.in_memory.cluster import NAMESPACE, write_count
from tests.support.in_memory.end_state import end_state, find_faults
from tonnage.api.names import CHILD_FIELD_MANAGER
from tonnage.kube.kinds import DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import ConflictError, Kind, NotFoundError, TransientError
from tonnage.reconcile.key import Key

CONFLICT, NOT_FOUND = ConflictError("409"), NotFoundError("404")
TOO_MANY, UNAVAILABLE = TransientError("429", retry_after=1.0), TransientError("503")


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_crash_at_any_write_ends_as_an_undisturbed_run(
    name: str, played: Counter[str]
) -> None:
    assert await _wrong(SCENARIOS[name], crashes, played, "crash plans") == {}


@pytest.mark.parametrize("error", [CONFLICT, NOT_FOUND], ids=["conflict", "not found"])
@pytest.mark.parametrize(
    "name",
    [
        "create",
        "re-plan to another pool",
        "roll to larger replicas on a full pool",
        "leave a pool whose nodes are gone",
        "delete and make anew",
        "ask for an InferencePool",
        "download before the first pod",
    ],
)
async def test_an_error_at_any_call_ends_as_an_undisturbed_run(
    name: str, error: Exception, played: Counter[str]
) -> None:
    assert await _wrong(SCENARIOS[name], errors(error), played) == {}


@pytest.mark.parametrize("name", ["leave a pool whose nodes are gone", "ask for an InferencePool"])
async def test_too_many_requests_at_any_call_end_as_an_undisturbed_run(
    name: str, played: Counter[str]
) -> None:
    assert await _wrong(SCENARIOS[name], errors(TOO_MANY), played) == {}


@pytest.mark.parametrize("error", [CONFLICT, UNAVAILABLE], ids=["conflict", "transient"])
async def test_an_inference_pool_no_longer_in_the_spec_is_deleted_after_any_crash(
    error: Exception, played: Counter[str]
) -> None:
    """But for a false 404 of it: an API server that says so of a pool that is there has no cure."""
    assert await _wrong(SCENARIOS["take the request for it back"], errors(error), played) == {}


@pytest.mark.parametrize(
    ("name", "kind", "taken"),
    [
        ("adopt no Deployment of others", DEPLOYMENTS, "llama-mi300x"),
        ("adopt no Service of others", SERVICES, "llama"),
    ],
)
async def test_a_foreign_object_is_never_adopted_whatever_fails(
    name: str, kind: Kind, taken: str
) -> None:
    scenario = SCENARIOS[name]
    start = await scenario.prepare()
    for error in (CONFLICT, UNAVAILABLE, Crash()):
        for call in range(1, 20):
            cluster = await start.copy()
            cluster.api.fault_at_call(cluster.api.call_count + call, error)
            await scenario.play(cluster)
            managers = cluster.api.field_managers(kind, NAMESPACE, taken)
            assert CHILD_FIELD_MANAGER not in managers


async def test_two_operators_at_once_end_as_one() -> None:
    scenario = SCENARIOS["re-plan to another pool"]
    alone = await scenario.prepare()
    cluster = await alone.copy()
    asked = write_count(alone.api)
    await scenario.play(alone)
    scenario.change(cluster)
    first = cluster.reconciler
    cluster.start_operator()
    second = cluster.reconciler
    key = Key(NAMESPACE, "llama")
    for _ in range(8):
        await asyncio.gather(first.reconcile(key), second.reconcile(key), return_exceptions=True)
        cluster.step()
    await cluster.settle()
    assert end_state(cluster.api) == end_state(alone.api)
    assert find_faults(cluster.api) == []
    assert write_count(cluster.api) <= 2 * (write_count(alone.api) - asked)


async def _wrong(
    scenario: Scenario, plans: Plans, played: Counter[str], what: str = "calls that fail"
) -> dict[str, list[str]]:
    """By plan, what was wrong with its end."""
    by_plan = {description: wrong async for description, wrong in play(scenario, plans)}
    played[what] += len(by_plan) - 1  # the first is undisturbed
    return {plan: wrong for plan, wrong in by_plan.items() if wrong}
