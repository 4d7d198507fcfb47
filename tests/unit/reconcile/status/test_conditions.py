"""The conditions after one reconcile: every combination that clients automate against."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import amd_node, nvidia_node
from tests.support.fleets.placing import LLAMA_8B, decide_on, spec_of
from tests.support.specs.observed import observed
from tonnage.api.conditions import MAX_MESSAGE_BYTES, ConditionType, Reason
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.api.text import truncate
from tonnage.fit.model import Parallelism
from tonnage.kube.rights import Right
from tonnage.reconcile.accept import Accepted, Refused
from tonnage.reconcile.observation.child_pods import ChildPod, ContainerEnd
from tonnage.reconcile.observation.children import Child, ChildDeployment
from tonnage.reconcile.observation.findings import Finding
from tonnage.reconcile.observation.optional.optional_child import OptionalChildError
from tonnage.reconcile.observation.previous import Unobserved
from tonnage.reconcile.plan import Plan, with_optional_child_error
from tonnage.reconcile.scheduling.outcome import Pending, Scheduled, Unschedulable
from tonnage.reconcile.status.conditions import all_findings, make_conditions
from tonnage.reconcile.status.status_input import EndpointFindings, StatusInput

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)

SPEC = spec_of(replicas=2)
DECISION = decide_on([amd_node("a")], LLAMA_8B, replicas=2)
NOTHING_FITS = decide_on([nvidia_node("a")], replicas=1, workload={"maxModelLen": 100_000_000})
NO_GPUS = decide_on([amd_node("a", cordoned=True)], LLAMA_8B, replicas=1)
ACCEPTED = Accepted(SPEC, LLAMA_8B)


def placed(granted: int = 2, replicas: int = 2) -> Scheduled:
    assert DECISION.chosen is not None
    return Scheduled(
        DECISION, replace(DECISION.chosen, replicas=replicas, capacity=granted), granted
    )


def deployment(
    ready: int = 2, wanted: int = 2, settled: bool = True, placement: str = "mi300x"
) -> ChildDeployment:
    labels = {"tonnage.dev/placement": placement}
    metadata = {"name": f"llama-{placement}", "labels": labels}
    body = {"metadata": metadata, "spec": {"template": {"spec": {}}}}
    return ChildDeployment(
        child=Child(f"llama-{placement}", "u1", "1", body),
        created=NOW,
        pool="amd-mi300x",
        parallelism=Parallelism(1, 1),
        placement_digest="",
        template="",
        wanted=wanted,
        existing=wanted,
        ready=ready,
        settled=settled,
        updated=1,
    )


def pod(placement: str = "mi300x", **state: Any) -> ChildPod:
    values = {"node": "a", "ready": False, "deleting": False, "restarts": 3, "gpus": 1} | state
    return ChildPod(name="llama-0", placement=placement, created=NOW, **values)


LOOPING = pod(end=ContainerEnd(1, "Error", "ValueError: too few heads"))
OUT_OF_MEMORY = pod(end=ContainerEnd(1, "Error", "torch.OutOfMemoryError: CUDA out of memory"))


def conditions_of(inputs: StatusInput, *, pods: Any = (), deployments: Any = ()) -> dict[str, Any]:
    """Status and reason of the listed conditions by type."""
    observation = observed(
        SPEC,
        created=NOW,
        model=LLAMA_8B,
        deployments=tuple(deployments),
        pods=tuple(pods),
    )
    conditions = make_conditions(all_findings(observation, inputs), [], 1, NOW)
    return {str(one.type): (one.status, one.reason) for one in conditions}


READY, LOADING, ROLLING = deployment(), deployment(ready=1), deployment(settled=False)
OLD = deployment(ready=1, wanted=1, placement="l40s")


@pytest.mark.parametrize(
    ("inputs", "pods", "deployments", "want"),
    [
        pytest.param(
            StatusInput(ACCEPTED, placed(), READY),
            [],
            [READY],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "PoolChosen"),
                "Progressing": ("False", "Settled"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("True", "ReplicasReady"),
            },
            id="all is well",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(), None),
            [],
            [],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "PoolChosen"),
                "Progressing": ("True", "RollingOut"),
                "Available": ("False", "ContainersNotReady"),
                "Ready": ("False", "RollingOut"),
                "Reconciling": ("True", "RollingOut"),
            },
            id="the first moment",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(), LOADING),
            [],
            [LOADING],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "PoolChosen"),
                "Progressing": ("True", "ContainersNotReady"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("False", "ContainersNotReady"),
                "Reconciling": ("True", "ContainersNotReady"),
            },
            id="part of the replicas loads",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(), ROLLING),
            [],
            [ROLLING],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "PoolChosen"),
                "Progressing": ("True", "RollingOut"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("False", "RollingOut"),
                "Reconciling": ("True", "RollingOut"),
            },
            id="all ready, some of an old template",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(), None),
            [],
            [READY],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "PoolChosen"),
                "Progressing": ("True", "RollingOut"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("False", "RollingOut"),
                "Reconciling": ("True", "RollingOut"),
            },
            id="all ready, and a change is on its way",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(), READY),
            [],
            [READY, OLD],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "PoolChosen"),
                "Progressing": ("True", "RollingOut"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("False", "RollingOut"),
                "Reconciling": ("True", "RollingOut"),
            },
            id="an old placement is left",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(), READY),
            [LOOPING],
            [READY],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "PoolChosen"),
                "Progressing": ("False", "Waiting"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("False", "CrashLooping"),
                "Stalled": ("True", "CrashLooping"),
            },
            id="one pod loops while the Deployment still counts it",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(), deployment(ready=0)),
            [LOOPING, replace(OUT_OF_MEMORY, name="llama-1")],
            [deployment(ready=0)],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "PoolChosen"),
                "Progressing": ("False", "Waiting"),
                "Available": ("False", "OutOfMemory"),
                "Ready": ("False", "OutOfMemory"),
                "Stalled": ("True", "OutOfMemory"),
            },
            id="out of memory comes before any other failure",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(), LOADING),
            [pod(node=None, unschedulable="0/5 nodes are available")],
            [LOADING],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "PoolChosen"),
                "Progressing": ("True", "Unschedulable"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("False", "Unschedulable"),
                "Reconciling": ("True", "Unschedulable"),
            },
            id="an unschedulable pod may pass",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(), READY),
            [replace(LOOPING, placement="l40s")],
            [READY],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "PoolChosen"),
                "Progressing": ("False", "Settled"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("True", "ReplicasReady"),
            },
            id="the failure of a placement that leaves",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(granted=1), deployment(ready=1, wanted=1)),
            [],
            [deployment(ready=1, wanted=1)],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("False", "InsufficientGPUs"),
                "Progressing": ("False", "Waiting"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("False", "InsufficientGPUs"),
            },
            id="partly granted, and that part is ready",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(granted=1), deployment(ready=0, wanted=1)),
            [],
            [deployment(ready=0, wanted=1)],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("False", "InsufficientGPUs"),
                "Progressing": ("True", "InsufficientGPUs"),
                "Available": ("False", "ContainersNotReady"),
                "Ready": ("False", "InsufficientGPUs"),
                "Reconciling": ("True", "InsufficientGPUs"),
            },
            id="partly granted, and that part loads",
        ),
        pytest.param(
            StatusInput(
                ACCEPTED, Pending(DECISION, READY, "no free GPUs", NOW + timedelta(seconds=60))
            ),
            [],
            [READY],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("False", "InsufficientGPUs"),
                "Progressing": ("False", "Waiting"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("False", "InsufficientGPUs"),
            },
            id="held",
        ),
        pytest.param(
            StatusInput(ACCEPTED, Unschedulable(NOTHING_FITS)),
            [],
            [],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("False", "DoesNotFit"),
                "Progressing": ("False", "Waiting"),
                "Available": ("False", "NotPlaced"),
                "Ready": ("False", "DoesNotFit"),
                "Stalled": ("True", "DoesNotFit"),
            },
            id="fits nowhere",
        ),
        pytest.param(
            StatusInput(ACCEPTED, Unschedulable(NO_GPUS)),
            [],
            [READY],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("False", "InsufficientGPUs"),
                "Progressing": ("False", "Waiting"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("False", "InsufficientGPUs"),
            },
            id="no GPUs, and something old goes on serving",
        ),
        pytest.param(
            StatusInput(Refused(Reason.INVALID_SPEC, "spec.x: no")),
            [],
            [READY],
            {
                "Accepted": ("False", "InvalidSpec"),
                "Placed": ("Unknown", "NotAccepted"),
                "Progressing": ("False", "Waiting"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("False", "InvalidSpec"),
                "Stalled": ("True", "InvalidSpec"),
            },
            id="refused while something old serves",
        ),
        pytest.param(
            StatusInput(Refused(Reason.RESOLVING_MODEL, "reading", pending=True)),
            [],
            [],
            {
                "Accepted": ("Unknown", "ResolvingModel"),
                "Placed": ("Unknown", "NotAccepted"),
                "Progressing": ("True", "ResolvingModel"),
                "Available": ("False", "NotPlaced"),
                "Ready": ("False", "ResolvingModel"),
                "Reconciling": ("True", "ResolvingModel"),
            },
            id="the model is on its way",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(0, 0), deployment(ready=0, wanted=0)),
            [],
            [deployment(ready=0, wanted=0)],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "ScaledToZero"),
                "Progressing": ("False", "Settled"),
                "Available": ("False", "ScaledToZero"),
                "Ready": ("True", "ScaledToZero"),
            },
            id="scaled to zero",
        ),
        pytest.param(
            StatusInput(ACCEPTED, placed(0, 0), None),
            [],
            [READY],
            {
                "Accepted": ("True", "Valid"),
                "Placed": ("True", "ScaledToZero"),
                "Progressing": ("True", "RollingOut"),
                "Available": ("True", "ReplicasReady"),
                "Ready": ("False", "RollingOut"),
                "Reconciling": ("True", "RollingOut"),
            },
            id="on the way to zero",
        ),
    ],
)
def test_conditions(inputs: StatusInput, pods: Any, deployments: Any, want: dict[str, Any]) -> None:
    assert conditions_of(inputs, pods=pods, deployments=deployments) == want


def finding(holds: bool | None, kind: ConditionType = ConditionType.READY) -> Finding:
    return Finding(kind, holds, "Because", "it is so")


def test_the_time_of_a_condition_changes_only_when_its_status_does() -> None:
    first = make_conditions([finding(False)], [], 1, NOW)
    same = make_conditions([finding(False)], [one.to_dict() for one in first], 2, LATER)
    turned = make_conditions([finding(True)], [one.to_dict() for one in same], 2, LATER)
    assert first[0].last_transition_time == "2026-01-01T12:00:00Z"
    assert (same[0].last_transition_time, same[0].observed_generation) == (
        "2026-01-01T12:00:00Z",
        2,
    )
    assert turned[0].last_transition_time == "2026-01-01T12:05:00Z"


@pytest.mark.parametrize("kind", [ConditionType.RECONCILING, ConditionType.STALLED])
@pytest.mark.parametrize(("holds", "want_count"), [(True, 1), (False, 0), (None, 0)])
def test_abnormal_conditions_are_listed_only_while_they_hold(
    kind: ConditionType, holds: bool | None, want_count: int
) -> None:
    assert len(make_conditions([finding(holds, kind)], [], 1, NOW)) == want_count


@pytest.mark.parametrize("character", ["a", "é", "模", "😀"])
@pytest.mark.parametrize("extra", range(-3, 5))
def test_a_long_message_is_cut_between_characters(character: str, extra: int) -> None:
    message = "x" * (MAX_MESSAGE_BYTES - 4) + character * 2 + "y" * max(0, extra)
    cut = truncate(message, MAX_MESSAGE_BYTES)
    assert len(cut.encode()) <= MAX_MESSAGE_BYTES
    assert cut == message or (cut.endswith("...") and message.startswith(cut[:-3]))
    assert (cut == message) == (len(message.encode()) <= MAX_MESSAGE_BYTES)


def test_a_failed_pod_of_an_old_template_is_no_failure_of_the_new_one() -> None:
    later = NOW + timedelta(seconds=1)
    old, new = replace(LOOPING, template="old"), replace(pod(), template="new", created=later)
    conditions = conditions_of(
        StatusInput(ACCEPTED, placed(), ROLLING), pods=[old, new], deployments=[ROLLING]
    )
    assert conditions["Ready"] == ("False", "RollingOut")
    assert "Stalled" not in conditions
    broken = replace(LOOPING, template="new", created=later)
    again = conditions_of(
        StatusInput(ACCEPTED, placed(), ROLLING), pods=[old, broken], deployments=[ROLLING]
    )
    assert again["Stalled"] == ("True", "CrashLooping")


def test_a_failure_that_another_plan_follows_does_not_last() -> None:
    now = StatusInput(ACCEPTED, placed(), LOADING)
    lasting = conditions_of(now, pods=[OUT_OF_MEMORY], deployments=[LOADING])
    assert lasting["Stalled"] == ("True", "OutOfMemory")
    for passing in (
        replace(now, plan_failed=True),
        replace(now, target=None),
        replace(now, target=replace(LOADING, updated=0)),
    ):
        conditions = conditions_of(passing, pods=[OUT_OF_MEMORY], deployments=[LOADING])
        assert conditions["Ready"] == ("False", "OutOfMemory")
        assert conditions["Progressing"] == ("True", "OutOfMemory")
        assert "Stalled" not in conditions


POOL = ConditionType.INFERENCE_POOL_APPLIED
RIGHT = Right("create", "apps", "deployments", "chat")


def findings_of(inputs: StatusInput) -> dict[str, Finding]:
    observation = observed(SPEC, created=NOW, model=LLAMA_8B, deployments=(READY,))
    return {str(finding.type): finding for finding in all_findings(observation, inputs)}


def test_findings_of_an_integration_are_added_to_those_of_the_replicas() -> None:
    own = StatusInput(ACCEPTED, placed(), READY)
    pool = Finding(POOL, None, "Unreachable", "503")
    with_pool = findings_of(replace(own, inference_pool=pool))
    assert with_pool == {**findings_of(own), str(POOL): pool}


def test_findings_of_an_integration_replace_those_of_the_replicas() -> None:
    own = StatusInput(ACCEPTED, placed(), READY)
    waits = Finding(ConditionType.READY, False, "EndpointNotReady", "the long one loads")
    findings = findings_of(replace(own, endpoints=EndpointFindings((), (waits,))))
    assert findings == {**findings_of(own), "Ready": waits}
    assert list(findings)[-1] == "Ready"


def test_a_missing_right_keeps_what_is_known_and_says_what_to_do() -> None:
    own = StatusInput(ACCEPTED, placed(), READY)
    pool = Finding(POOL, True, "Applied", "all replicas")
    findings = findings_of(replace(own, inference_pool=pool, missing_right=RIGHT))
    for kept in ("Accepted", "Placed", "Available"):
        assert findings[kept] == findings_of(own)[kept]
    assert findings[str(POOL)] == pool
    for kind, holds in (("Ready", False), ("Stalled", True), ("Progressing", False)):
        assert findings[kind].holds is holds
        assert "may not create" in findings[kind].message


def test_an_object_that_may_not_be_observed_keeps_its_report_but_ready_is_unknown() -> None:
    before = findings_of(StatusInput(ACCEPTED, placed(), READY))
    known = Unobserved(InferenceDeploymentStatus(), tuple(before.values()))
    findings = findings_of(StatusInput(known, missing_right=RIGHT))
    assert findings["Ready"].status == "Unknown"
    assert "replica state is unknown" in findings["Ready"].message
    assert findings["Available"] == before["Available"]


def test_a_later_error_is_reported_and_unchanged_conditions_keep_their_times() -> None:
    condition = {"type": "Accepted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    observation = observed(
        SPEC,
        created=NOW,
        model=LLAMA_8B,
        deployments=(READY,),
        previous_status={"conditions": [condition]},
    )
    plan = Plan(observation, NOW, StatusInput(ACCEPTED, placed(), READY), ())
    assert {one.type: one.last_transition_time for one in plan.status.conditions} == {
        "Accepted": "2026-01-01T00:00:00Z",
        **dict.fromkeys(("Placed", "Progressing", "Available", "Ready"), "2026-01-01T12:00:00Z"),
    }
    error = OptionalChildError(Reason.UNREACHABLE, "503", passing=True)
    changed = with_optional_child_error(plan, error)
    before, after = plan.status.conditions, changed.status.conditions
    assert after[:-1] == before
    assert (after[-1].type, after[-1].status, after[-1].message) == (str(POOL), "Unknown", "503")
    assert changed.requeue.seconds == 30.0
