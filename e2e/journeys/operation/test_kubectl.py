"""kubectl commands of users, and an operator that has nothing to do."""

from __future__ import annotations

import time

from e2e.harness.operator_process import USER, OperatorProcess
from e2e.journeys.conftest import UseFleet
from e2e.journeys.pools import await_pool, counts, discovered
from e2e.journeys.user import User, has
from e2e.models import inference

_QUIET_SECONDS = 60


def test_kubectl_scale_wait_get_and_explain(fleet: UseFleet, user: User) -> None:
    fleet("tiny")
    inside = ["-n", user.namespace]
    user.apply(inference("llama", "llama-3.1-8b"))
    ready = "--for=condition=Ready"
    user.admin.kubectl(*inside, "wait", ready, "infd/llama", "--timeout=100s")
    user.forget("llama")
    user.admin.kubectl(*inside, "scale", "infd/llama", "--replicas=2")
    status = user.wait("llama", lambda status: has("Ready")(status) and status["replicas"] == 2)
    assert status["readyReplicas"] == 2
    assert len(user.children("pods", "llama")) == 2
    await_pool(user.admin, "amd-mi300x", lambda pool: counts(pool)[2] == 6, why="two GPUs taken")

    header, row = user.admin.kubectl(*inside, "get", "infd").splitlines()
    assert header.split() == [
        "NAME", "READY", "POOL", "ACCELERATOR", "TP", "REPLICAS", "REASON", "AGE",
    ]  # fmt: skip
    assert row.split()[:2] == ["llama", "True"]
    assert "MESSAGE" in user.admin.kubectl(*inside, "get", "infd", "-o", "wide")
    for category in ("tonnage", "all"):
        names = user.admin.kubectl(*inside, "get", category, "-o", "name").splitlines()
        assert "inferencedeployment.tonnage.dev/llama" in names
        has_pools = any(name.startswith("acceleratorpool.") for name in names)
        assert has_pools == (category == "tonnage")
    explained = user.admin.kubectl("explain", "infd.spec.placement")
    for field in ("policy", "accelerators", "fallback"):
        assert field in explained
    assert "mi300x" in user.admin.kubectl("get", "apool")


def test_a_new_object_gets_its_first_child_without_waiting_for_a_resync(
    fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    user.apply(inference("before", "llama-3.1-8b"))
    user.wait_ready("before")
    user.await_quiet()
    mark = user.admin.audit_mark()
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    asked = [
        (event["verb"], event["objectRef"]["resource"], event["responseStatus"]["code"])
        for event in user.admin.requests(USER, since=mark)
        if "llama" in event["requestURI"]
    ]
    assert asked[0] == ("patch", "deployments", 201)
    (made,) = user.children("deployments", "llama")
    managers = {(one["manager"], one["operation"]) for one in made["metadata"]["managedFields"]}
    assert managers == {("tonnage", "Apply"), ("kube-controller-manager", "Update")}


def test_scaling_to_zero_and_back(fleet: UseFleet, user: User) -> None:
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    user.apply(inference("llama", "llama-3.1-8b", replicas=0))
    user.wait("llama", has("Available", "False", "ScaledToZero"))
    user.admin.until("its pod to be gone", lambda: not user.children("pods", "llama"), timeout=90)
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")


def test_a_converged_object_is_not_written(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet("mixed")
    names = [f"llama-{number:03}" for number in range(60)] + [f"none-{n:03}" for n in range(40)]
    for name in names:
        replicas = 0 if name.startswith("none") else 1
        user.apply(inference(name, "llama-3.1-8b", replicas=replicas))
    for name in names:
        user.wait_ready(name, timeout=300)
    # A start brings all statuses up to date with the GPUs that others have taken meanwhile. Else
    # the next resync would, every ten minutes.
    operator.stop()
    operator.start()
    user.admin.until("the pools to be reported", lambda: taken(user) == granted(user))
    user.await_quiet()
    mark = user.admin.audit_mark()
    time.sleep(_QUIET_SECONDS)  # the journey is a minute in which nothing happens
    assert user.operator_writes(mark) == []


def granted(user: User) -> int:
    """How many GPUs the objects have, as their statuses report it."""
    return sum(
        placement["replicas"] * placement["gpusPerReplica"]
        for model in user.admin.items("infd")
        for placement in model["status"].get("placements") or []
    )


def taken(user: User) -> int:
    """How many GPUs are in use, as the pools report it."""
    gpus = map(counts, discovered(user.admin).values())
    return sum(allocatable - free for _, allocatable, free, _ in gpus)
