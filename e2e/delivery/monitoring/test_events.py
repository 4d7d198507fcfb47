"""Transitions of conditions write one Event each; unchanged conditions write none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.harness.admin import SLOW, Admin
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import H100, MI300X, declared, restore, silence
from e2e.journeys.user import User, has, runs_on
from e2e.models import inference
from tests.support.load.exposition import read_series

OPERATOR = "tonnage.dev/operator"
RECONCILES = 1000
FLAPS = 4


@pytest.fixture(scope="module")
def shared_operator(
    control_plane: Stack, installed: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator that reconciles as fast as it can."""
    unlimited = {"TONNAGE_KUBE_API_QPS": "10000", "TONNAGE_KUBE_API_BURST": "10000"}
    folder = tmp_path_factory.mktemp("operator")
    process = OperatorProcess(control_plane, folder, environment=unlimited)
    process.start()
    yield process
    process.close()


def events(user: User, name: str) -> list[Json]:
    """The Events that the operator wrote for an object."""
    of_operator = (event for event in user.admin.items("events") if _reporter(event) == OPERATOR)
    return [event for event in of_operator if _subject(event)["name"] == name]


def _reporter(event: Json) -> str | None:
    """Who wrote it; the two APIs of events name the same fields differently."""
    return event.get("reportingComponent") or event.get("reportingController")


def _subject(event: Json) -> Json:
    """The object that it speaks of."""
    reference: Json = event.get("involvedObject") or event["regarding"]
    return reference


def summary(recorded: list[Json]) -> dict[tuple[str, str], int]:
    """The count of each Event by action and reason."""
    counts: dict[tuple[str, str], int] = {}
    for event in recorded:
        key = (event["action"], event["reason"])
        assert key not in counts, f"{key} has more than one Event"
        counts[key] = (event.get("series") or {}).get("count", 1)
    return counts


def reconciles(operator: OperatorProcess) -> float:
    return sum(
        value
        for (name, _), value in read_series(operator.metrics()).items()
        if name == "controller_runtime_reconcile_total"
    )


def test_a_thousand_reconciles_of_an_unchanged_object_write_no_event(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet("tiny")
    user.apply(inference("settled", "llama-3.1-8b"))
    user.wait_ready("settled", timeout=SLOW)
    user.forget("settled")  # its annotations change from here on
    # The event follows the status that it tells of.
    user.admin.until(
        "the event of Ready",
        lambda: ("Ready", "ReplicasReady") in summary(events(user, "settled")),
        timeout=SLOW,
    )
    user.await_quiet()
    before = events(user, "settled")
    version = user.get("settled")["status"]
    target, number = reconciles(operator) + RECONCILES, 0
    while reconciles(operator) < target:
        for _ in range(20):
            number += 1
            change = {"metadata": {"annotations": {"example.com/touched": str(number)}}}
            user.admin.patch("infd", "settled", change)
    assert events(user, "settled") == before
    assert user.get("settled")["status"] == version


def test_a_flapping_object_has_one_event_per_transition_with_a_count(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet({"groups": [{"name": "h100", "accelerator": "h100-sxm-80gb", "gpusPerNode": 8}]})
    user.apply(inference("flaps", "llama-3.1-8b"))
    user.wait_ready("flaps", timeout=SLOW)
    for _ in range(FLAPS):
        silence(user.admin, ["h100-0"])
        # Ready may be False for another reason at first, where the pod is marked before the node.
        user.wait("flaps", has("Placed", "False"), timeout=SLOW)
        restore(user.admin, ["h100-0"])
        user.wait_ready("flaps", timeout=SLOW)
    ready = ("Ready", "ReplicasReady")
    user.admin.until(
        "the Event of the last transition",
        lambda: summary(events(user, "flaps")).get(ready) == FLAPS + 1,
        timeout=SLOW,
        describe=lambda: str(summary(events(user, "flaps"))),
    )
    counts = summary(events(user, "flaps"))
    assert max(count for (_, reason), count in counts.items() if reason != "ReplicasReady") >= FLAPS


def test_a_migration_event_has_both_pools_and_the_reason(
    fleet: UseFleet, user: User, declare: Declare, operator: OperatorProcess
) -> None:
    fleet("tiny")
    declare(declared("amd", MI300X, costPerGPUHour="3.00"))
    declare(declared("nvidia", H100, costPerGPUHour="1.00"))
    fallback = {"fallback": {"after": "2s"}}
    user.apply(inference("moves", "llama-3.1-8b", placement=fallback))
    user.wait("moves", runs_on("nvidia"), timeout=SLOW)
    silence(user.admin, ["h100-0"])
    user.wait("moves", runs_on("amd"), timeout=SLOW)
    move = user.admin.until(
        "the Event of the migration",
        lambda: next((one for one in events(user, "moves") if one["action"] == "Moving"), None),
        timeout=SLOW,
    )
    note = str(move.get("message", move.get("note")))
    assert move["reason"] == "FellBack"
    assert note.startswith("from pool nvidia to pool amd: ")
    assert "h100-0" in note
    restore(user.admin, ["h100-0"])
