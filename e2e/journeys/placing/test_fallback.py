"""Replicas that lose their pool wait, migrate to another vendor, stay or return."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable

import pytest

from e2e.doubles.watch_recorder import WatchRecorder
from e2e.harness.admin import Admin
from e2e.harness.operator_process import USER
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import H100, MI300X, await_pool, counts, declared, restore, silence
from e2e.journeys.user import User, has, runs_on, verdict
from e2e.models import inference
from e2e.nodes.behaviours import KEY, WELL_KEY
from e2e.nodes.fleet import apply_fleet

Change = Callable[[Stack, User], None]


def lose_contact(_: Stack, user: User) -> None:
    silence(user.admin, ["h100-0"])


def regain_contact(_: Stack, user: User) -> None:
    restore(user.admin, ["h100-0"])


def vanish(_: Stack, user: User) -> None:
    """The node is gone for good; its pods are removed as the controller does within a minute."""
    user.admin.delete("nodes", "h100-0")
    force = ("--all", "--force", "--grace-period=0", "--wait=false")
    user.admin.kubectl("delete", "pods", *force, "-n", user.namespace)


def join_again(control_plane: Stack, _: User) -> None:
    group = {"name": "h100", "accelerator": "h100-sxm-80gb"}
    apply_fleet(control_plane.access, {"groups": [group]})


@pytest.fixture
def two_vendors(fleet: UseFleet, declare: Declare) -> None:
    """A node of each vendor; NVIDIA's costs less, so that is where replicas go."""
    fleet("tiny")
    declare(declared("amd", MI300X, costPerGPUHour="3.00"))
    declare(declared("nvidia", H100, costPerGPUHour="1.00"))


@pytest.mark.parametrize(
    ("lose", "regain"), [(lose_contact, regain_contact), (vanish, join_again)],
    ids=["silent", "vanished"],
)  # fmt: skip
def test_replicas_fall_back_from_h100_to_mi300x_and_return_only_with_the_policy(
    control_plane: Stack, two_vendors: None, user: User, lose: Change, regain: Change
) -> None:
    for name in ("stays", "returns"):
        user.apply(falling_back(name))
    for name in ("stays", "returns"):
        user.wait(name, runs_on("nvidia"), why=f"{name} to start where it costs least")
    lose(control_plane, user)
    for name in ("stays", "returns"):
        status = user.wait(name, runs_on("amd"), why=f"{name} to fall back to the other vendor")
        assert "nvidia" in status["placements"][0]["message"]
    there = user.wait_pods("stays", 1)
    await_pool(user.admin, "nvidia", lambda pool: counts(pool)[1] == 0, why="its node to be lost")
    regain(control_plane, user)
    await_pool(user.admin, "nvidia", lambda pool: counts(pool)[1] == 8, why="its node to be back")
    look_at_again(user, "stays", output_tokens=201)  # from here on it has the same chance
    user.wait("returns", runs_on("nvidia"), why="the one that may return to do so")
    status = look_at_again(user, "stays", output_tokens=202)
    assert runs_on("amd")(status)
    assert user.pods("stays") == there
    assert verdict(status, "nvidia")["verdict"] == "Feasible"
    assert "stay" in verdict(status, "nvidia")["message"]
    assert "never (spec.placement.fallback.back)" in json.dumps(status)


def test_a_new_object_leaves_a_pool_on_which_it_crashes_and_says_why(
    two_vendors: None, declare: Declare, user: User
) -> None:
    declare(declared("amd", MI300X, costPerGPUHour="9.00"))  # a replica needs more GPUs of NVIDIA
    annotations = {KEY: "crash-loop", WELL_KEY: "--tensor-parallel-size=1"}  # on MI300X alone
    manifest = inference(
        "llama",
        "llama-3.3-70b",
        replicas=1,
        placement={"fallback": {"after": "2s"}},
        rollout={"progressDeadline": "20s"},  # also of the start that is to succeed
        template={"metadata": {"annotations": annotations}},
    )
    user.apply(manifest)
    user.wait("llama", on_pool("nvidia"), why="the cheaper pool to be tried")
    status = user.wait("llama", runs_on("amd"), why="the other pool to take over", timeout=240)
    (placement,) = status["placements"]
    assert placement["reason"] == "FellBack"
    assert "its replicas did not come up: CrashLooping" in placement["message"]
    assert verdict(status, "nvidia")["reason"] == "FailedBefore"
    assert [plan["pool"] for plan in status["failedPlans"]] == ["nvidia"]


def on_pool(pool: str) -> Callable[[Json], bool]:
    """A predicate on a status: its replicas are to run on this pool."""
    return lambda status: [one["pool"] for one in status.get("placements") or []] == [pool]


def falling_back(name: str, output_tokens: int = 200) -> Json:
    """An object that leaves a lost pool after 2 s, and returns after 2 s if it is named so."""
    back = {"back": "WhenPossible"} if name == "returns" else {}
    window = {"stabilizationWindow": "2s"}
    return inference(
        name,
        "llama-3.1-8b",
        placement={"fallback": {"after": "2s", **back}, "rebalance": window},
        workload={"maxModelLen": 32768, "concurrency": 8, "outputTokens": output_tokens},
    )


def look_at_again(user: User, name: str, output_tokens: int) -> Json:
    """Change what restarts nothing, and wait for what the operator says of the object by then."""
    user.apply(falling_back(name, output_tokens))
    return user.wait(name, lambda status: True, why=f"{name} to be looked at")


def test_a_pool_that_flaps_faster_than_the_fallback_delay_migrates_no_replica(
    two_vendors: None, user: User
) -> None:
    user.apply(tolerating("10m"))
    user.wait("llama", runs_on("nvidia"))
    began = time.monotonic()
    flap(user)
    # Longer than the node is away at a time, on a machine as busy as this one.
    after_seconds = max(10, 5 * math.ceil(time.monotonic() - began))
    user.apply(tolerating(f"{after_seconds}s"))
    user.wait("llama", runs_on("nvidia"))
    began, mark = time.monotonic(), user.admin.audit_mark()
    while time.monotonic() < began + 1.3 * after_seconds:
        flap(user)
    written = [event["objectRef"]["name"] for event in written_deployments(user.admin, mark)]
    assert [name for name in written if name.endswith("mi300x")] == []


def tolerating(after: str) -> Json:
    """An object that leaves a lost pool after this time."""
    return inference("llama", "llama-3.1-8b", placement={"fallback": {"after": after}})


def flap(user: User) -> None:
    """The node falls silent, and speaks again once that is reported."""
    silence(user.admin, ["h100-0"])
    user.wait("llama", has("Placed", "False"), why="the replicas to be without a node")
    restore(user.admin, ["h100-0"])
    user.wait("llama", runs_on("nvidia"), why="the replicas to run there again")


def test_objects_with_the_policy_migrate_to_a_cheaper_pool_one_at_a_time(
    control_plane: Stack, fleet: UseFleet, declare: Declare, user: User
) -> None:
    h100 = {"name": "h100", "accelerator": "h100-sxm-80gb"}
    fleet({"groups": [h100]})
    declare(declared("nvidia", H100, costPerGPUHour="1.00"))
    window = {"stabilizationWindow": "2s"}
    movers = ["mover-0", "mover-1", "mover-2"]
    for name in movers:
        rebalance = {"policy": "WhenCheaperBy", "percent": 20, **window}
        user.apply(inference(name, "llama-3.1-8b", placement={"rebalance": rebalance}))
    user.apply(inference("stays", "llama-3.1-8b", placement={"rebalance": window}))
    for name in (*movers, "stays"):
        user.wait(name, runs_on("nvidia"))
    there, mark = user.pods("stays"), user.admin.audit_mark()
    apply_fleet(control_plane.access, {"groups": [{"name": "mi300x", "accelerator": "mi300x"}]})
    declare(declared("amd", MI300X, costPerGPUHour="0.50"))
    for name in movers:
        user.wait(name, runs_on("amd"), why=f"{name} to move to the cheaper pool")
    assert most_moving_at_once(user.admin, mark) == 1
    assert runs_on("nvidia")(user.status("stays"))
    assert user.pods("stays") == there


def written_deployments(admin: Admin, mark: int) -> list[Json]:
    """The operator's writes to Deployments from this mark in the audit log on."""
    events = admin.requests(USER, verbs=("patch", "delete"), since=mark)
    return [event for event in events if event["objectRef"]["resource"] == "deployments"]


def most_moving_at_once(admin: Admin, mark: int) -> int:
    """The most objects that had a Deployment in both pools at a time, by the audit log.

    A move begins with the new Deployment and ends when the old one is deleted.
    """
    moving: set[str] = set()
    moved: set[str] = set()
    most = 0
    for event in written_deployments(admin, mark):
        name = event["objectRef"]["name"]
        owner = "-".join(name.split("-")[:2])  # mover-0-mi300x, mover-0-h100-sxm-80gb
        if event["verb"] == "delete":
            moving.discard(owner)
            moved.add(owner)
        elif name.endswith("mi300x") and owner not in moved:
            moving.add(owner)
        most = max(most, len(moving))
    return most


def test_migration_between_pools_of_the_same_accelerator_keeps_replicas_ready(
    fleet: UseFleet, declare: Declare, user: User
) -> None:
    racks = [
        {"name": name, "accelerator": "mi300x", "labels": {"rack": name}} for name in ("a", "b")
    ]
    fleet({"groups": racks})
    declare(declared("a", {"rack": "a"}, costPerGPUHour="2.00"))
    declare(declared("b", {"rack": "b"}, costPerGPUHour="3.00"))
    rebalance = {"policy": "WhenCheaperBy", "percent": 20, "stabilizationWindow": "2s"}
    user.apply(inference("llama", "llama-3.1-8b", placement={"rebalance": rebalance}))
    user.wait("llama", runs_on("a"))
    there = user.pods("llama")

    def moved(status: Json) -> bool:
        return bool(runs_on("b")(status)) and not there & user.pods("llama")

    with WatchRecorder(user.admin, "infd", "llama", user.namespace) as recorder:
        declare(declared("b", {"rack": "b"}, costPerGPUHour="1.00"))
        user.wait("llama", moved, why="the replicas to run in the other rack")
    ready = [version["status"]["readyReplicas"] for version in recorder.versions]
    assert min(ready) > 0, "no replica was ready for a moment"
    (name,) = user.wait_pods("llama", 1)
    pod = user.admin.get("pods", name)
    assert pod is not None
    assert pod["spec"]["nodeName"] == "b-0"
