"""The operator is down or killed, and servers that do not become ready."""

from __future__ import annotations

import random
import time
from functools import partial

import pytest

from e2e.harness.operator_process import NAMESPACE, OperatorProcess
from e2e.journeys.conftest import UseFleet
from e2e.journeys.end_state import everything, summary
from e2e.journeys.user import User, condition, has
from e2e.models import inference


def test_deleting_an_object_without_an_operator_removes_all_children(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    operator.kill()
    user.admin.delete("infd", "llama")
    user.forget("llama")
    for kind in ("deployments", "replicasets", "services", "pods"):
        user.admin.until(
            f"all {kind} of the deleted object to be gone",
            partial(has_none, user, kind),
        )


def has_none(user: User, kind: str) -> bool:
    return not user.children(kind, "llama")


def test_an_operator_killed_at_random_times_converges_without_duplicates(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet("mixed")
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    names = [f"llama-{number:02}" for number in range(20)]
    for first in range(0, len(names), 5):
        user.admin.until("the operator to lead", lambda: operator.leads)
        for name in names[first : first + 5]:
            user.apply(inference(name, chance.choice(["llama-3.1-8b", "llama-3.3-70b"])))
        time.sleep(chance.uniform(0, 0.3))  # any moment of the work will do, and no other is meant
        operator.kill()
        operator.start()
    for name in names:
        user.wait_ready(name)
    user.admin.until(
        f"one pod of each object, seed {seed}",
        lambda: everything(user.admin, user.namespace)["pods"] == names,
        describe=lambda: str(everything(user.admin, user.namespace)),
    )
    disturbed = everything(user.admin, user.namespace)
    assert len(disturbed["deployments"]) == len(names), f"seed {seed}"
    assert disturbed["services"] == names, f"seed {seed}"
    before = summary(user, names)
    operator.kill()
    operator.start()
    user.admin.until("the operator to lead", lambda: operator.leads)
    user.await_quiet()
    assert summary(user, names) == before, f"seed {seed}"
    assert everything(user.admin, user.namespace) == disturbed, f"seed {seed}"


def test_an_operator_that_loses_its_lease_ends_and_the_next_one_goes_on(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    pods, ended = user.pods("llama"), operator.pid
    user.admin.patch("leases", "tonnage", {"spec": {"holderIdentity": "another"}}, NAMESPACE)
    user.admin.until("the next one to start", lambda: operator.pid != ended)
    user.apply(inference("second", "llama-3.1-8b"))
    user.wait_ready("second")
    assert user.pods("llama") == pods


FAILURES = {
    "out-of-memory": ("OutOfMemory", "KV cache"),
    "exit-zero": ("ServerExited", "exit code 0"),
    "crash-loop": ("CrashLooping", "exit code 1"),
    "image-pull-failure": ("ImagePullFailed", "image"),
}


@pytest.mark.parametrize("behaviour", FAILURES)
def test_a_failing_server_is_reported_with_its_log_and_recovers(
    fleet: UseFleet, user: User, behaviour: str
) -> None:
    reason, words = FAILURES[behaviour]
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b", behaviour=behaviour))
    status = user.wait("llama", has("Ready", "False", reason))
    assert words in condition(status, "Ready")["message"]
    # The Deployment may count a replica as ready for a moment after its end.
    user.wait("llama", has("Available", "False", reason))
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")


def test_a_server_that_never_becomes_ready_is_not_ready_and_not_stalled(
    fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b", behaviour="never-ready"))
    status = user.wait("llama", has("Ready", "False", "ContainersNotReady"))
    assert condition(status, "Progressing")["status"] == "True"
    assert condition(status, "Stalled") == {}
