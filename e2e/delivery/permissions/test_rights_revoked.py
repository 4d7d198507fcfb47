"""When a permission is revoked, affected objects report it and all others are reconciled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from functools import partial

import pytest

from e2e.delivery.availability.held_pods import let_come_up
from e2e.delivery.permissions.life import TWO_NODES
from e2e.delivery.permissions.team import grant_on_cluster, withdraw_from_cluster
from e2e.harness.admin import SLOW, Admin
from e2e.harness.operator_process import ROOT, Account, OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, candidate, condition, has
from e2e.models import inference
from e2e.rights import Right, denied, roles_of

RETRY = 300.0
"""Seconds: a right that is missing is asked for again after 60, and a fifth more at most."""


class Rights:
    """What one operator may do, changed while it runs."""

    def __init__(self, admin: Admin, account: Account) -> None:
        self._admin, self._account = admin, account
        base = roles_of(admin, ROOT / "manifests" / "base")
        self._rules: list[Json] = [rule for role in base for rule in role["rules"]]
        self._revoked: set[Right] = set()
        self.restore()

    def restore(self) -> None:
        """All that is shipped, from the return of this on."""
        grant_on_cluster(self._admin, self._account, self._rules)
        for right in self._revoked:
            is_granted = partial(self._allows, right)
            self._admin.until(f"{right} to be granted", is_granted, timeout=SLOW)
        self._revoked = set()

    def revoke(self, *rights: Right) -> None:
        """All that is shipped but these, from the return of this on."""
        self._revoked = set(rights)
        rules = [split for rule in self._rules for split in _without(rule, self._revoked)]
        grant_on_cluster(self._admin, self._account, rules)
        for right in rights:
            is_denied = partial(self._denies, right)
            self._admin.until(f"{right} to be denied", is_denied, timeout=SLOW)

    def _denies(self, right: Right) -> bool:
        return not self._allows(right)

    def _allows(self, right: Right) -> bool:
        """What the authorizer says, which learns of a change a moment later."""
        plural, slash, subresource = right.resource.partition("/")
        resource = f"{plural}.{right.group}{slash}{subresource}"
        return self._admin.allows(self._account.user, right.verb, resource, "")


def _without(rule: Json, rights: set[Right]) -> Iterator[Json]:
    """The rule, resource by resource, without these rights."""
    (group,) = rule["apiGroups"]
    for resource in rule["resources"]:
        verbs = [verb for verb in rule["verbs"] if Right(group, resource, verb) not in rights]
        if verbs:
            yield deepcopy(rule) | {"resources": [resource], "verbs": verbs}


@pytest.fixture(scope="module")
def account(installed: Admin) -> Iterator[Account]:
    """A ServiceAccount that has nothing to do with the shipped one."""
    with ExitStack() as ended:
        account = Account(ended.enter_context(installed.fresh_namespace("tonnage")), "tonnage")
        metadata = {"name": account.name, "namespace": account.namespace}
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        installed.apply(body)
        ended.callback(withdraw_from_cluster, installed, account)
        yield account


@pytest.fixture(scope="module")
def shipped_rights(installed: Admin, account: Account) -> Rights:
    return Rights(installed, account)


@pytest.fixture(scope="module")
def shared_operator(
    control_plane: Stack,
    shipped_rights: Rights,
    account: Account,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorProcess]:
    """In the place of the one with the shipped ServiceAccount."""
    folder = tmp_path_factory.mktemp("operator")
    process = OperatorProcess(control_plane, folder, account=account)
    process.start()
    yield process
    process.close()


@pytest.fixture
def rights(shipped_rights: Rights) -> Iterator[Rights]:
    yield shipped_rights
    shipped_rights.restore()


def missing(operator: OperatorProcess) -> dict[str, float]:
    """The metric, by its labels."""
    name = "tonnage_permission_missing"
    lines = [line for line in operator.metrics().splitlines() if line.startswith(name + "{")]
    return {line.split("}")[0].removeprefix(name + "{"): float(line.split()[-1]) for line in lines}


def await_missing(
    user: User, operator: OperatorProcess, verb: str, resource: str, value: float
) -> None:
    labels = f'resource="{resource}",verb="{verb}"'
    user.admin.until(
        f"{verb} {resource} to be reported as {value:g}",
        lambda: missing(operator).get(labels) == value,
        timeout=RETRY,
        describe=lambda: str(missing(operator)),
    )


PATCH = Right("apps", "deployments", "patch")


def replace_a_pod(user: User, name: str) -> None:
    """The only pod goes, and the next one comes up once it is reported that none is ready."""
    (pod,) = user.pods(name)
    user.admin.delete("pods", pod)
    user.wait(name, has("Ready", "False"), timeout=SLOW)
    let_come_up(user, name)
    user.wait_ready(name, timeout=SLOW)


def test_objects_that_need_a_revoked_permission_report_it_and_others_are_reconciled(
    fleet: UseFleet, user: User, operator: OperatorProcess, rights: Rights
) -> None:
    fleet("mixed")
    user.apply(inference("concerned", "llama-3.1-8b"))
    user.apply(inference("other", "llama-3.1-8b", behaviour="never-ready"))
    let_come_up(user, "other")
    for name in ("concerned", "other"):
        user.wait_ready(name, timeout=SLOW)
    rights.revoke(PATCH)
    user.apply(inference("concerned", "llama-3.1-8b", max_model_len=8192))
    status = user.wait("concerned", has("Ready", "False", "Forbidden"), timeout=SLOW)
    message = condition(status, "Ready")["message"]
    assert "may not patch deployments.apps in namespace" in message
    assert 'resources ["deployments"], verbs ["patch"]' in message
    assert condition(status, "Stalled")["reason"] == "Forbidden"
    assert condition(status, "Placed")["status"] == "True"
    assert condition(status, "Available")["status"] == "True"
    await_missing(user, operator, "patch", "deployments", 1)
    # Objects that do not need it are reconciled: a deleted pod is replaced and reported.
    replace_a_pod(user, "other")
    rights.restore()
    user.wait_ready("concerned", timeout=RETRY)
    await_missing(user, operator, "patch", "deployments", 0)


def test_a_quota_is_not_reported_as_a_missing_permission(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet("tiny")
    quota = {"hard": {"count/deployments.apps": "0"}}
    metadata = {"name": "none"}
    user.admin.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": quota}
    )
    user.admin.wait_for("resourcequotas", "none", lambda quota: quota.get("status"), timeout=SLOW)
    user.apply(inference("llama", "llama-3.1-8b"))
    status = user.wait("llama", has("Accepted", "False", "ChildRefused"), timeout=SLOW)
    assert "exceeded quota" in condition(status, "Accepted")["message"]
    assert 1.0 not in missing(operator).values()


def test_pods_stay_known_by_their_watch_when_list_is_revoked(
    fleet: UseFleet, user: User, operator: OperatorProcess, rights: Rights
) -> None:
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b", behaviour="never-ready"))
    let_come_up(user, "llama")
    user.wait_ready("llama", timeout=SLOW)
    rights.revoke(Right("", "pods", "list"))
    replace_a_pod(user, "llama")
    rights.restore()
    user.forget("llama")


def test_without_a_right_to_leader_worker_sets_replicas_on_one_node_run(
    fleet: UseFleet, user: User, operator: OperatorProcess, rights: Rights
) -> None:
    fleet(TWO_NODES)
    verbs = ("create", "delete", "get", "list", "patch", "watch")
    rights.revoke(*(Right("leaderworkerset.x-k8s.io", "leaderworkersets", verb) for verb in verbs))
    operator.stop()
    operator.start()
    h100: Json = {"accelerators": ["h100-sxm-80gb"]}
    user.apply(inference("deepseek", "deepseek-v3", placement=h100))
    status = user.wait("deepseek", has("Placed", "False", "DoesNotFit"), timeout=SLOW)
    rejected = candidate(status, "h100-sxm-80gb")
    assert rejected["reason"] == "WorkloadKindMissing"
    assert "or the operator may not list it" in rejected["message"]
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama", timeout=SLOW)
    await_missing(user, operator, "list", "leaderworkersets", 1)
    for name in ("deepseek", "llama"):
        user.forget(name)


def test_without_status_permission_replicas_start_and_a_metric_reports_it(
    fleet: UseFleet, user: User, operator: OperatorProcess, rights: Rights
) -> None:
    fleet("tiny")
    rights.revoke(Right("tonnage.dev", "inferencedeployments/status", "patch"))
    user.apply(inference("llama", "llama-3.1-8b"))
    user.admin.wait_items(
        "deployments",
        lambda deployments: [each["status"].get("readyReplicas") for each in deployments] == [1],
        timeout=SLOW,
    )
    await_missing(user, operator, "patch", "inferencedeployments/status", 1)
    why = "may not patch inferencedeployments/status.tonnage.dev"
    user.admin.until(
        "the log to say it, too",
        lambda: any(why in line["message"] for line in operator.log_lines()),
        timeout=SLOW,
    )
    rights.restore()
    user.apply(inference("llama", "llama-3.1-8b"))
    user.admin.patch("infd", "llama", {"metadata": {"labels": {"look": "again"}}})
    user.wait_ready("llama", timeout=RETRY)
    user.forget("llama")


def test_without_watch_permission_the_operator_lists_and_a_metric_reports_it(
    fleet: UseFleet, user: User, operator: OperatorProcess, rights: Rights, account: Account
) -> None:
    fleet("tiny")
    rights.revoke(Right("", "pods", "watch"))
    operator.stop()
    operator.start()  # a watch that is open is not cut by the API server
    await_missing(user, operator, "watch", "pods", 1)
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama", timeout=RETRY)
    rights.restore()
    await_missing(user, operator, "watch", "pods", 0)
    assert denied(user.admin.requests(account.user))
