"""How children are read, also after other clients edited them."""

import json
from typing import Any

import pytest

from tonnage.api.conditions import Reason
from tonnage.api.names import (
    ANNOTATION_PLACEMENT,
    ANNOTATION_RENDERED_FROM,
    INFERENCE_DEPLOYMENT,
    LABEL_OWNER,
    LABEL_PLACEMENT,
)
from tonnage.engines.registry import ENGINE_KINDS
from tonnage.fit.model import Footprint, Parallelism
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments
from tonnage.reconcile.observation.child_pods import read_pods
from tonnage.reconcile.observation.children import (
    is_controlled_by,
    read_deployment,
    read_deployments,
)
from tonnage.reconcile.observation.pods.failures import _ORDER, find_failure, needs_log
from tonnage.reconcile.scheduling.reservations import read_reservations


def owner(uid: str = "u0", **more: Any) -> dict[str, Any]:
    return {"kind": INFERENCE_DEPLOYMENT, "name": "llama", "uid": uid, "controller": True, **more}


def deployment(
    placement: str = '{"pool":"amd","tensorParallelSize":4,"pipelineParallelSize":2}',
    **how: Any,
) -> dict[str, Any]:
    status = {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}
    return {
        "metadata": {
            "name": "llama-mi300x",
            "namespace": "chat",
            "uid": "u1",
            "resourceVersion": "7",
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {ANNOTATION_PLACEMENT: placement},
            "labels": {LABEL_OWNER: "llama", LABEL_PLACEMENT: "mi300x"},
            "ownerReferences": how.get("owners", [owner()]),
        },
        "spec": {"replicas": 2},
        "status": status | how.get("status", {}),
    }


def pod(name: str = "p", status: Any = None, **how: Any) -> dict[str, Any]:
    limits = {"amd.com/gpu": "4"}
    return {
        "metadata": {
            "name": name,
            "namespace": "chat",
            "uid": name,
            "creationTimestamp": how.get("created", "2026-01-01T00:00:00Z"),
            "labels": {LABEL_PLACEMENT: "mi300x"},
            **how.get("metadata", {}),
        },
        "spec": {"containers": [{"name": "vllm", "resources": {"limits": limits}}]},
        "status": status or {},
    }


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "vllm", "restartCount": 2, **state}]}


def terminated(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


READY = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    ("owners", "want"),
    [
        ([owner()], True),
        ([owner("other")], False),
        ([owner(controller=False)], False),
        ([{"kind": INFERENCE_DEPLOYMENT, "name": "llama", "uid": "u0"}], False),
        ([], False),
        ([owner("other"), owner(controller=False), owner()], True),
    ],
)
def test_only_the_controller_with_this_uid_controls(owners: Any, want: bool) -> None:
    body = deployment(owners=owners)
    assert is_controlled_by(body, "u0") is want
    assert len(read_deployments([body], "u0", ())) == int(want)


@pytest.mark.parametrize(
    ("text", "want_pool", "want_parallelism"),
    [
        (
            '{"pool":"amd","tensorParallelSize":4,"pipelineParallelSize":2}',
            "amd",
            Parallelism(4, 2),
        ),
        (
            '{"pool":"amd","tensorParallelSize":1,"dataParallelSize":16,"nodesPerReplica":2}',
            "amd",
            Parallelism(data=16, nodes=2),
        ),
        ("", "", Parallelism(1, 1)),
        ("null", "", Parallelism(1, 1)),
        ("[" * 100_000, "", Parallelism(1, 1)),
        ("1" * 10_000, "", Parallelism(1, 1)),
        ('{"pool":{"a":1},"tensorParallelSize":"8"}', "{'a': 1}", Parallelism(1, 1)),
        (
            '{"pool":"amd","tensorParallelSize":-8,"pipelineParallelSize":0}',
            "amd",
            Parallelism(1, 1),
        ),
        ('{"pool":"amd","tensorParallelSize":1e99}', "amd", Parallelism(1, 1)),
    ],
)
def test_a_placement_annotation_is_read_or_counts_as_absent(
    text: str, want_pool: str, want_parallelism: Parallelism
) -> None:
    read = read_deployment(deployment(text))
    assert (read.pool, read.parallelism) == (want_pool, want_parallelism)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{}", UNADJUSTED),
        (
            '{"gpuMemoryUtilization":0.88,"maxNumSeqs":512,"maxNumBatchedTokens":4096}',
            EngineAdjustments(0.88, 512, 4096),
        ),
        ('{"maxNumSeqs":512}', EngineAdjustments(max_num_seqs=512)),
        ('{"gpuMemoryUtilization":7.5,"maxNumSeqs":-1,"maxNumBatchedTokens":true}', UNADJUSTED),
        ('{"gpuMemoryUtilization":"1","maxNumSeqs":1e99,"maxNumBatchedTokens":[]}', UNADJUSTED),
    ],
)
def test_adjustments_of_the_engine_are_read_or_count_as_unset(
    text: str, want: EngineAdjustments
) -> None:
    assert read_deployment(deployment(text)).adjustments == want


@pytest.mark.parametrize(
    ("status", "want_settled"),
    [
        ({}, True),
        ({"observedGeneration": 2}, False),
        ({"updatedReplicas": 1}, False),
        ({"replicas": 3}, False),
        ({"replicas": 1, "updatedReplicas": 1}, False),
    ],
    ids=["all seen", "an older generation", "an old pod", "one too many", "one too few"],
)
def test_settled_means_that_all_pods_run_the_current_template(
    status: Any, want_settled: bool
) -> None:
    assert read_deployment(deployment(status=status)).settled is want_settled


@pytest.mark.parametrize(("generation", "want_settled"), [(2, True), (3, True), (4, False)])
def test_a_record_written_alone_changes_no_pod(generation: int, want_settled: bool) -> None:
    """The Deployment controller has observed generation 2; the record made a later one."""
    body = deployment(status={"observedGeneration": 2})
    body["metadata"]["generation"] = generation
    body["metadata"]["annotations"][ANNOTATION_RENDERED_FROM] = json.dumps({"recordedAt": 2})
    assert read_deployment(body).settled is want_settled


def test_a_deployment_without_the_operators_metadata_can_be_read() -> None:
    body = deployment()
    body["metadata"] |= {"annotations": None, "labels": None}
    read = read_deployment(body | {"status": {}})
    assert (read.placement, read.pool, read.ready, read.settled) == ("", "", 0, False)


def test_pods_are_read_oldest_first_with_their_gpus() -> None:
    pods = read_pods([pod("b", created="2026-01-02T00:00:00Z"), pod("c"), pod("a")])
    assert [one.name for one in pods] == ["a", "c", "b"]
    assert {one.gpus for one in pods} == {4}


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_for_good_is_left_out(phase: str) -> None:
    assert read_pods([pod(status={"phase": phase} | container(state=terminated(1)))]) == ()


@pytest.mark.parametrize(
    ("status", "log", "want"),
    [
        pytest.param(READY, "", None, id="ready"),
        pytest.param({}, "", None, id="nothing known yet"),
        pytest.param(
            READY | container(state={"running": {}}, lastState=terminated(137, "OOMKilled")),
            "",
            None,
            id="ready again after it was killed",
        ),
        pytest.param(
            container(state={"running": {}}, lastState=terminated(1)),
            "ValueError: too few heads",
            (Reason.CRASH_LOOPING, "exit code 1: ValueError: too few heads"),
            id="started again and not ready",
        ),
        pytest.param(
            container(state=terminated(137, "OOMKilled")),
            "",
            (Reason.OUT_OF_MEMORY, "the kernel killed it: host memory limit exceeded"),
            id="killed for host memory",
        ),
        pytest.param(
            container(state=terminated(1, message="torch.OutOfMemoryError: CUDA out of memory")),
            "",
            (Reason.OUT_OF_MEMORY, "torch.OutOfMemoryError: CUDA out of memory"),
            id="the termination message where there is no log",
        ),
        pytest.param(
            container(state=terminated(1, message="RuntimeError: See root cause above.")),
            "torch.OutOfMemoryError: HIP out of memory",
            (Reason.OUT_OF_MEMORY, "torch.OutOfMemoryError: HIP out of memory"),
            id="the log before the termination message",
        ),
        pytest.param(
            container(state=terminated(0, "Completed")),
            "",
            (Reason.SERVER_EXITED, "the server ended with exit code 0"),
            id="exit code 0 is a failure too",
        ),
        pytest.param(
            container(state=terminated(3)),
            "",
            (Reason.CRASH_LOOPING, "exit code 3: exit code 3 (Error)"),
            id="without a log",
        ),
        pytest.param(
            container(state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}),
            "",
            (Reason.CRASH_LOOPING, "back-off"),
            id="crash loop whose end is not known",
        ),
        pytest.param(
            container(state={"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}),
            "",
            (Reason.IMAGE_PULL_FAILED, "not found"),
            id="image",
        ),
        pytest.param(
            container(state={"waiting": {"reason": "ErrImagePull"}}),
            "",
            (Reason.IMAGE_PULL_FAILED, "ErrImagePull"),
            id="image without a message",
        ),
        pytest.param(
            container(state={"waiting": {"reason": "ContainerCreating"}}),
            "",
            None,
            id="being created",
        ),
        pytest.param(
            container(
                state={
                    "waiting": {"reason": "CreateContainerConfigError", "message": 'secret "hf"'}
                }
            ),
            "",
            (Reason.CONTAINER_NOT_CREATED, 'CreateContainerConfigError: secret "hf"'),
            id="a Secret is missing",
        ),
        pytest.param(
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/5 nodes",
                    }
                ]
            },
            "",
            (Reason.UNSCHEDULABLE, "0/5 nodes"),
            id="unschedulable",
        ),
        pytest.param(
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "SchedulingGated",
                        "message": "Scheduling is blocked due to non-empty scheduling gates",
                    }
                ]
            },
            "",
            (Reason.CONTAINERS_NOT_READY, "Scheduling is blocked"),
            id="held back by a queue",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "sidecar", "state": terminated(1)}]},
            "",
            None,
            id="only a foreign sidecar failed",
        ),
    ],
)
def test_why_a_pod_does_not_serve(status: Any, log: str, want: tuple[Reason, str] | None) -> None:
    failure = find_failure(read_pods([pod(status=status)]), {"p": log})
    if want is None:
        assert failure is None
    else:
        assert failure is not None
        assert failure.reason == want[0]
        assert failure.words.startswith(want[1])
        assert str(failure).startswith("pod p: ")


def test_a_pod_that_is_being_deleted_has_not_failed() -> None:
    terminating = pod(
        status=container(state=terminated(143)),
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"},
    )
    pods = read_pods([terminating])
    assert find_failure(pods, {}) is None
    assert not needs_log(pods[0])


@pytest.mark.parametrize(
    ("state", "want_previous"),
    [
        ({"state": terminated(1)}, False),
        ({"state": terminated(0, "Completed")}, False),
        ({"state": {"running": {}}, "lastState": terminated(1)}, True),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": terminated(1)}, True),
    ],
)
def test_the_log_is_that_of_the_container_that_ended(state: Any, want_previous: bool) -> None:
    (read,) = read_pods([pod(status=container(**state))])
    assert needs_log(read)
    assert read.ended_before is want_previous


def test_every_reason_that_a_rule_can_give_has_its_rank() -> None:
    rules = [rule for engine in ENGINE_KINDS.values() for rule, _ in engine.startup_log.rules]
    assert rules
    assert {rule.reason for rule in rules} <= set(_ORDER)


def test_reservations_are_read_from_owned_deployments() -> None:
    foreign = [
        deployment(owners=[]),
        deployment(owners=[owner(kind="ReplicaSet")]),
        deployment(owners=[owner(controller=False)]),
    ]
    reservations = read_reservations([deployment(), *foreign])
    assert [(one.owner, one.placement, one.pool) for one in reservations] == [
        (("chat", "llama"), "mi300x", "amd")
    ]
    assert (reservations[0].footprint, reservations[0].replicas) == (Footprint(8), 2)


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ("10.1.2.3", "10.1.2.3:8000"),
        ("fd00::7", "[fd00::7]:8000"),
        ("2001:db8::7", "[2001:db8::7]:8000"),
        ("169.254.169.254", None),
        ("::ffff:169.254.169.254", None),
        ("fe80::1", None),
        ("::ffff:10.1.2.3", "10.1.2.3:8000"),
        ("2001:db8::7%]@10.96.0.1?", None),
        ("2001:db8::7%eth0", None),
        ("224.0.0.1", None),
        ("0.0.0.0", None),
        ("chat.example", None),
        (None, None),
    ],
)
def test_only_addresses_that_pods_have_are_used(address: str | None, want: str | None) -> None:
    (read,) = read_pods([pod(status={"podIP": address})])
    assert read.address == want
