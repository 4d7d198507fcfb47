"""A frozen leader is replaced in time, and its late writes do no harm."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from functools import partial

import pytest
from rich.console import Console

from e2e.doubles.fault_proxy import Call, FaultProxy, Held
from e2e.harness.admin import SLOW, WRITES, Admin
from e2e.harness.operator_process import NAMESPACE, USER, OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.end_state import everything
from e2e.journeys.user import User, argument
from e2e.models import WEIGHTS_BYTES, inference, inline_source

FROZEN_SECONDS = 20.0
FAIL_OVER_SECONDS = 15.0
SLACK = 15.0
"""Seconds by which a busy machine may be late at what has a time of its own."""


class Replicas:
    """Two operators, each with a way of its own to the API server, on which all it asks is seen."""

    def __init__(self, operators: list[OperatorProcess], proxies: list[FaultProxy]) -> None:
        self._proxies = dict(zip(operators, proxies, strict=True))

    def leader(self, admin: Admin) -> tuple[OperatorProcess, FaultProxy]:
        """The operator that holds the Lease, once both run."""
        for operator in self._proxies:
            if not operator.running:
                operator.start()
        return admin.until(
            "one of them to lead",
            lambda: next((pair for pair in self._proxies.items() if pair[0].leads), None),
            timeout=SLOW,
        )

    def other(self, operator: OperatorProcess) -> OperatorProcess:
        """The other operator."""
        return next(each for each in self._proxies if each is not operator)


@pytest.fixture(scope="module")
def replicas(
    control_plane: Stack, installed: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas]:
    with ExitStack() as ends:
        operators, proxies = [], []
        for name in ("first", "second"):
            proxy = ends.enter_context(FaultProxy(control_plane.access))
            folder = tmp_path_factory.mktemp(name)
            operator = OperatorProcess(control_plane, folder, server=proxy.url)
            ends.callback(operator.close)
            operator.start()
            operators.append(operator)
            proxies.append(proxy)
        yield Replicas(operators, proxies)


@pytest.fixture
def operator(replicas: Replicas, installed: Admin) -> OperatorProcess:
    """The leader, in the place of an operator that is alone."""
    return replicas.leader(installed)[0]


def lease(admin: Admin) -> Json:
    stored = admin.get("leases", "tonnage", NAMESPACE)
    assert stored is not None
    return dict(stored["spec"])


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def is_renewed(admin: Admin, before: str) -> bool:
    return bool(lease(admin)["renewTime"] != before)


def await_one_pod(user: User) -> None:
    """Wait until nothing is left but one Deployment, its Service and its pod: pods that were
    replaced go a moment after all is Ready."""
    want = {"deployments": ["llama-l40s"], "services": ["llama"], "pods": ["llama"]}
    user.admin.until(
        f"{want}",
        lambda: everything(user.admin, user.namespace) == want,
        timeout=SLOW,
        describe=lambda: str(everything(user.admin, user.namespace)),
    )


def max_model_len(user: User) -> str:
    (deployment,) = user.children("deployments", "llama")
    return argument(deployment, "--max-model-len")


def test_a_frozen_leader_is_replaced_and_writes_nothing_when_it_resumes(
    fleet: UseFleet, user: User, replicas: Replicas
) -> None:
    """It froze amid a reconcile: the last of what it reads is under way, a write comes next."""
    fleet("mixed")
    frozen, way = replicas.leader(user.admin)
    standby = replicas.other(frozen)
    facts = inline_source("llama-3.1-8b")["inline"]["config"]
    data = {"config.json": json.dumps(facts), "weightsBytes": str(WEIGHTS_BYTES["llama-3.1-8b"])}
    metadata = {"name": "facts"}
    user.admin.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    model = {"source": {"configMap": {"name": "facts", "loadFrom": "acme/llama"}}}
    user.apply(inference("llama", max_model_len=4096, model=model))
    user.wait_ready("llama", timeout=SLOW)
    user.await_quiet()
    mark, last_read = user.admin.audit_mark(), Held()

    def reads_the_facts(call: Call) -> bool:
        return call.path == f"/api/v1/namespaces/{user.namespace}/configmaps/facts"

    with way.inject(reads_the_facts, last_read) as fault:
        user.apply(inference("llama", max_model_len=8192, model=model))
        user.admin.until("it to be about to write", lambda: fault.calls, timeout=SLOW)
        frozen.freeze()
        began = time.monotonic()
        before = lease(user.admin)
        user.admin.until("the standby to lead", lambda: standby.leads, timeout=SLOW)
        lost_at = time.monotonic()
        after = lease(user.admin)
        user.wait_ready("llama", timeout=SLOW)
        served = time.monotonic() - began
        assert max_model_len(user) == "8192"
        last_read.let_go()
        user.admin.until("what it waited for to arrive", lambda: last_read.codes, timeout=SLOW)
    gap = moment(after["acquireTime"]) - moment(before["renewTime"])
    Console().print(
        f"\nfail-over: {gap:.1f} s after the last renewal by the lease, {lost_at - began:.1f} s"
        f" after the freeze; what was changed served {served:.1f} s after it"
    )
    assert gap < FAIL_OVER_SECONDS + SLACK
    assert after["leaseTransitions"] == before["leaseTransitions"] + 1
    time.sleep(max(0.0, FROZEN_SECONDS - served))  # so long is it frozen, however soon all is well
    frozen.thaw()
    user.admin.until("its end", lambda: not frozen.running, timeout=SLOW)
    assert frozen.exit_code == 1
    assert [call for call in way.calls if call.is_write and call.at > lost_at] == []
    assert lease(user.admin)["holderIdentity"] == after["holderIdentity"]
    await_one_pod(user)
    written = [
        event["objectRef"]["name"]
        for event in user.admin.requests(USER, verbs=WRITES, since=mark)
        if event["objectRef"]["resource"] == "deployments"
    ]
    assert written == ["llama-l40s"], "its Deployment was written once"


def test_a_late_write_of_the_former_leader_is_reverted(
    fleet: UseFleet, user: User, replicas: Replicas
) -> None:
    fleet("mixed")
    frozen, way = replicas.leader(user.admin)
    standby = replicas.other(frozen)
    held = Held()

    def deployment(call: Call) -> bool:
        return call.is_write and f"/{user.namespace}/deployments/llama" in call.path

    with way.inject(deployment, held) as fault:
        user.apply(inference("llama", "llama-3.1-8b", max_model_len=4096))
        user.admin.until("the write to be under way", lambda: fault.calls, timeout=SLOW)
        frozen.freeze()
        user.admin.until("the standby to lead", lambda: standby.leads, timeout=SLOW)
        lost_at = time.monotonic()
        user.wait_ready("llama", timeout=SLOW)
        user.apply(inference("llama", "llama-3.1-8b", max_model_len=8192))
        user.wait_ready("llama", timeout=SLOW)
        user.await_quiet()
        assert max_model_len(user) == "8192"
        held.let_go()
        user.admin.until("the late write to arrive", lambda: held.codes, timeout=SLOW)
        user.admin.until("it to be put right", lambda: max_model_len(user) == "8192", timeout=SLOW)
        frozen.thaw()
        user.admin.until("its end", lambda: not frozen.running, timeout=SLOW)
    assert frozen.exit_code == 1
    assert [call for call in way.calls if call.is_write and call.at > lost_at] == []
    user.wait_ready("llama", timeout=SLOW)
    user.await_quiet()
    assert max_model_len(user) == "8192"
    await_one_pod(user)


def test_wrong_times_in_the_lease_do_not_change_the_leader(user: User, replicas: Replicas) -> None:
    replicas.leader(user.admin)
    before = lease(user.admin)
    for wrong in ("1970-01-01T00:00:00.000000Z", "2099-12-31T23:59:59.000000Z"):
        change = {"spec": {"renewTime": wrong, "acquireTime": wrong}}
        user.admin.patch("leases", "tonnage", change, NAMESPACE)
        for _ in range(2):
            seen = lease(user.admin)["renewTime"]
            renewed = partial(is_renewed, user.admin, seen)
            user.admin.until("a renewal", renewed, timeout=SLOW)
        after = lease(user.admin)
        same = ("holderIdentity", "leaseTransitions")
        assert [after[name] for name in same] == [before[name] for name in same]
