"""Long requests have an endpoint of their own: created, kept, reported, refused and deleted."""

from typing import Any

import pytest

from tests.support.api_server.fake_api import Crash
from tests.support.in_memory.approving import approve
from tests.support.in_memory.cluster import L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import crashing, loading
from tests.support.in_memory.long_context import (
    ABOVE,
    ALL,
    LONG,
    apart,
    endpoint,
    objects,
    ready_by_context,
    served_apart,
    together,
    two_cards,
)
from tests.support.in_memory.serving import SETTLED
from tonnage.api.model import InlineSource
from tonnage.api.names import LABEL_CONTEXT, LABEL_KUEUE_QUEUE, LABEL_OWNER
from tonnage.checkpoint.facts import checkpoint_from_inline
from tonnage.checkpoint.lookup import ModelPending
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS, SERVICES
from tonnage.kube.protocol import ForbiddenError, InvalidError, Object
from tonnage.kube.rights import Right
from tonnage.workloads.names import long_endpoint_name


def pool_of(cluster: Cluster, name: str) -> str:
    (placement,) = cluster.status(name)["placements"]
    return str(placement["pool"])


def arguments(cluster: Cluster, owner: str) -> list[str]:
    (pod, *_) = cluster.pods(owner)
    return list(pod["spec"]["containers"][0]["args"])


def contexts(cluster: Cluster, kind: Any) -> dict[str, str | None]:
    return {
        body["metadata"]["name"]: body["metadata"].get("labels", {}).get(LABEL_CONTEXT)
        for body in cluster.api.objects(kind)
    }


async def apply(cluster: Cluster, spec: Object) -> None:
    cluster.apply("llama", spec)
    await cluster.settle()


async def test_short_requests_run_on_the_cheap_card_and_long_ones_on_the_large_one() -> None:
    cluster = await served_apart()
    assert pool_of(cluster, "llama") == "nvidia-l40s"
    assert pool_of(cluster, LONG) == "amd-mi300x"
    assert f"--max-model-len={ABOVE}" in arguments(cluster, "llama")
    assert f"--max-model-len={ALL}" in arguments(cluster, LONG)
    name = "--served-model-name=llama-3.1-8b"
    assert name in arguments(cluster, "llama")
    assert name in arguments(cluster, LONG)


async def test_routers_find_both_endpoints_by_a_label() -> None:
    cluster = await served_apart()
    assert contexts(cluster, SERVICES) == {"llama": "short", LONG: "long"}
    assert contexts(cluster, DEPLOYMENTS) == {"llama-l40s": "short", f"{LONG}-mi300x": "long"}
    assert set(contexts(cluster, PODS).values()) == {"short", "long"}
    listed = cluster.status()["endpoints"]
    assert [(one["context"], one["service"], one["maxModelLen"]) for one in listed] == [
        ("short", "llama", ABOVE),
        ("long", LONG, ALL),
    ]
    assert ready_by_context(cluster) == {
        "short": (True, "ReplicasReady"),
        "long": (True, "ReplicasReady"),
    }


async def test_an_object_without_a_long_endpoint_costs_no_request_and_has_no_label() -> None:
    cluster = two_cards()
    await apply(cluster, spec_of())
    await cluster.resync()
    gets = [call for call in cluster.api.calls if call.kind == INFERENCE_DEPLOYMENTS]
    assert {call.name for call in gets} == {"llama"}
    assert "endpoints" not in cluster.status()
    assert set(contexts(cluster, PODS).values()) == {None}


async def test_an_object_that_is_marked_by_hand_passes_the_mark_on() -> None:
    cluster = two_cards()
    for name, mark in (("llama", "long"), ("qwen", "neither")):
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {LABEL_CONTEXT: mark}}
        cluster.api.put(INFERENCE_DEPLOYMENTS, {"metadata": metadata, "spec": spec_of()})
    await cluster.settle()
    assert contexts(cluster, SERVICES) == {"llama": "long", "qwen": None}


async def test_the_endpoint_has_its_owner_and_no_tracking_metadata_of_other_tools() -> None:
    cluster = two_cards()
    tracked = {"argocd.argoproj.io/tracking-id": "app:llama"}
    metadata = {
        "name": "llama",
        "namespace": NAMESPACE,
        "labels": {LABEL_KUEUE_QUEUE: "team", "app.kubernetes.io/instance": "app"},
        "annotations": tracked,
    }
    cluster.api.put(INFERENCE_DEPLOYMENTS, {"metadata": metadata, "spec": apart()})
    await cluster.settle()
    live = endpoint(cluster)["metadata"]
    (owner,) = live["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == (
        "InferenceDeployment",
        "llama",
        True,
    )
    assert live["labels"] == {
        "app.kubernetes.io/name": "vllm",
        "app.kubernetes.io/managed-by": "tonnage",
        LABEL_OWNER: "llama",
        LABEL_CONTEXT: "long",
        LABEL_KUEUE_QUEUE: "team",
    }
    assert set(live["annotations"]) == {"tonnage.dev/rendered"}


@pytest.mark.parametrize(
    ("long", "want"),
    [
        ({}, {"concurrency": 4, "inputTokens": (ABOVE + ALL) // 2 - 200, "outputTokens": 200}),
        ({"concurrency": None}, {"concurrency": 1}),
        ({"inputTokens": 90000, "outputTokens": 1000}, {"inputTokens": 90000}),
        ({"outputTokens": 2000}, {"inputTokens": (ABOVE + ALL) // 2 - 2000}),
        (
            {"latencyTargets": {"timeToFirstToken": "60s"}},
            {"latencyTargets": {"timeToFirstToken": "60s"}},
        ),
    ],
    ids=["defaults", "one at once", "both lengths", "output length", "targets"],
)
async def test_the_endpoint_has_the_workload_of_long_requests(long: Object, want: Object) -> None:
    cluster = await served_apart(long={key: value for key, value in long.items() if value})
    if long.get("concurrency", 4) is None:
        spec = apart()
        del spec["workload"]["longContext"]["concurrency"]
        await apply(cluster, spec)
    workload = endpoint(cluster)["spec"]["workload"]
    assert workload["maxModelLen"] == ALL
    assert "longContext" not in workload
    assert want.items() <= workload.items()


async def test_other_fields_of_the_spec_are_those_of_the_owner() -> None:
    extra = {
        "engine": {"vllm": {"maxNumSeqs": 64}},
        "placement": {"spread": {"policy": "WhenShort"}},
        "scaling": {"maxReplicas": 3},
        "rollout": {"strategy": "Surge"},
        "template": {"metadata": {"labels": {"team": "chat"}}},
        "kvCacheDtype": "fp8",
    }
    cluster = await served_apart(**extra)
    spec = endpoint(cluster)["spec"]
    assert {key: spec[key] for key in extra} == extra
    assert set(spec) == {"model", "workload", *extra}


@pytest.mark.parametrize(
    ("spec", "long", "want"),
    [
        ({"replicas": 3}, {}, (3, 1)),
        ({"replicas": 3}, {"replicas": 2}, (3, 2)),
        ({}, {"replicas": 2}, (1, 2)),
        ({"replicas": 0}, {"replicas": 2}, (0, 0)),
    ],
    ids=["short given", "both given", "long given", "stopped"],
)
async def test_each_endpoint_has_its_own_replicas(
    spec: Object, long: Object, want: tuple[int, int]
) -> None:
    cluster = two_cards()
    await apply(cluster, apart(long, **spec))
    assert (len(cluster.pods()), len(cluster.pods(LONG))) == want
    assert cluster.conditions()["Ready"][0] == "True"


async def test_a_change_of_the_owner_reaches_the_endpoint() -> None:
    cluster = await served_apart()
    await apply(cluster, apart(engine={"vllm": {"maxNumSeqs": 77}}))
    assert "--max-num-seqs=77" in arguments(cluster, LONG)
    await apply(cluster, apart())
    assert "--max-num-seqs=77" not in arguments(cluster, LONG)


async def test_foreign_changes_of_the_endpoint_are_reverted_and_additions_stay() -> None:
    cluster = await served_apart()
    body = endpoint(cluster)
    body["spec"]["workload"]["maxModelLen"] = 16384
    body["spec"]["workload"]["inputTokens"] = 9000
    body["spec"]["replicas"] = 2
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    await cluster.settle()
    spec = endpoint(cluster)["spec"]
    assert (spec["workload"]["maxModelLen"], spec["replicas"]) == (ALL, 2)
    assert cluster.conditions() == SETTLED


async def test_a_converged_endpoint_is_not_written() -> None:
    cluster = await served_apart()
    before = cluster.api.write_count
    await cluster.resync()
    cluster.start_operator()
    await cluster.settle()
    assert cluster.api.write_count == before


# Ready


async def test_the_owner_is_ready_only_when_the_endpoint_is() -> None:
    cluster = two_cards()
    cluster.behaviours[LONG] = loading
    await apply(cluster, apart())
    conditions = cluster.conditions()
    assert conditions["Available"] == ("True", "ReplicasReady")
    assert conditions["Ready"] == ("False", "EndpointNotReady")
    assert conditions["Progressing"] == conditions["Reconciling"] == ("True", "EndpointNotReady")
    assert "Stalled" not in conditions
    assert f"chat/{LONG}" in cluster.message("Ready")
    assert cluster.message("Ready", LONG) in cluster.message("Ready")
    assert ready_by_context(cluster) == {
        "short": (True, "ReplicasReady"),
        "long": (False, "ContainersNotReady"),
    }
    del cluster.behaviours[LONG]
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_an_endpoint_that_fails_for_good_stalls_its_owner() -> None:
    cluster = two_cards()
    cluster.behaviours[LONG] = crashing(1)
    await apply(cluster, apart())
    assert cluster.conditions(LONG)["Stalled"] == ("True", "CrashLooping")
    assert cluster.conditions()["Stalled"] == ("True", "EndpointNotReady")
    assert cluster.conditions()["Progressing"] == ("False", "EndpointNotReady")


async def test_the_owners_own_failure_is_reported_first() -> None:
    cluster = two_cards()
    cluster.behaviours["llama"] = cluster.behaviours[LONG] = crashing(1)
    await apply(cluster, apart())
    assert cluster.conditions()["Ready"] == ("False", "CrashLooping")
    assert ready_by_context(cluster)["long"] == (False, "CrashLooping")


async def test_an_endpoint_without_capacity_leaves_short_requests_served() -> None:
    cluster = Cluster(L40S)
    cluster.occupy("l40s-0", 3, "nvidia.com/gpu")
    await apply(cluster, apart())
    assert cluster.conditions()["Placed"][0] == "True"
    assert cluster.conditions()["Ready"] == ("False", "EndpointNotReady")
    assert cluster.conditions(LONG)["Placed"][0] == "False"
    cluster.join(**MI300X)
    await cluster.settle()
    assert cluster.conditions() == cluster.conditions(LONG) == SETTLED


async def test_conditions_of_an_earlier_generation_do_not_count() -> None:
    cluster = await served_apart()
    cluster.apply("llama", apart({"concurrency": 5}))
    for _ in ("before it is applied", "before it is reconciled"):
        await cluster.reconcile("llama")
        assert ready_by_context(cluster)["long"] == (False, "Pending")
        assert cluster.conditions()["Ready"] == ("False", "EndpointNotReady")
    await cluster.settle()
    assert cluster.conditions() == SETTLED


# Approval


async def test_each_endpoint_waits_for_its_own_approval_and_keeps_it() -> None:
    cluster = two_cards()
    await apply(cluster, apart(approval="Manual"))
    approve(cluster)
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "EndpointNotReady")
    assert ready_by_context(cluster)["long"] == (False, "AwaitingApproval")
    body = endpoint(cluster)
    body["spec"]["approvedPlan"] = cluster.status(LONG)["proposedPlan"]["hash"]
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    await cluster.settle()
    await cluster.resync()
    assert endpoint(cluster)["spec"]["approvedPlan"] == body["spec"]["approvedPlan"]
    assert cluster.conditions() == cluster.conditions(LONG)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


# Refusals


@pytest.mark.parametrize(
    ("long", "workload", "want"),
    [
        ({"above": ALL}, {}, "longContext.above 131072 must be below maxModelLen 131072"),
        ({"concurrency": 12}, {}, "longContext.concurrency 12 must be below concurrency 12"),
        ({"inputTokens": 7000}, {}, "longContext.inputTokens 7000 and outputTokens 200"),
        ({"inputTokens": ALL}, {}, "at most maxModelLen (131072)"),
        ({"outputTokens": 100_000}, {}, "longContext.inputTokens is not set"),
        ({}, {"inputTokens": 8000}, "longContext.above is 8192, and a typical request"),
        ({"above": 0}, {}, "spec.workload.longContext.above"),
        ({}, {"maxModelLen": 10**6}, "spec.workload.maxModelLen"),
    ],
    ids=[
        "no request is long",
        "all requests are long",
        "a typical long one is short",
        "a typical long one is too long",
        "no tokens left for a prompt",
        "a typical short one is long",
        "no length",
        "longer than the model can",
    ],
)
async def test_a_contradiction_is_refused_and_running_replicas_stay(
    long: Object, workload: Object, want: str
) -> None:
    cluster = await served_apart()
    before = [pod["metadata"]["name"] for name in ("llama", LONG) for pod in cluster.pods(name)]
    spec = endpoint(cluster)["spec"]
    await apply(cluster, apart(long, workload=workload))
    assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")
    assert want in cluster.message("Accepted")
    after = [pod["metadata"]["name"] for name in ("llama", LONG) for pod in cluster.pods(name)]
    assert after == before
    assert endpoint(cluster)["spec"] == spec
    assert set(ready_by_context(cluster)) == {"short", "long"}


async def test_a_foreign_object_with_the_name_is_left_alone() -> None:
    cluster = two_cards()
    cluster.apply(LONG, spec_of(replicas=2))
    await cluster.settle()
    foreign = endpoint(cluster)
    await apply(cluster, apart())
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert f"InferenceDeployment chat/{LONG} exists" in cluster.message("Accepted")
    assert endpoint(cluster) == foreign
    assert cluster.pods() == []
    await apply(cluster, together())
    assert cluster.conditions() == SETTLED
    assert endpoint(cluster) == foreign
    cluster.delete(LONG)
    await apply(cluster, apart())
    await cluster.wait(30)
    assert cluster.conditions() == cluster.conditions(LONG) == SETTLED


async def test_a_name_that_is_taken_later_is_refused_and_never_adopted() -> None:
    cluster = await served_apart()
    cluster.delete(LONG)
    cluster.apply(LONG, spec_of(replicas=2))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert "tonnage" not in cluster.api.field_managers(INFERENCE_DEPLOYMENTS, NAMESPACE, LONG)
    await apply(cluster, together())
    assert objects(cluster) == ["llama", LONG]
    assert "endpoints" not in cluster.status()


async def test_a_missing_right_is_reported_and_short_requests_are_served() -> None:
    cluster = two_cards()
    right = Right("create", "tonnage.dev", "inferencedeployments", None)
    denied = ForbiddenError("403", right)
    cluster.api.fail_next("apply", denied, kind=INFERENCE_DEPLOYMENTS, times=1000)
    await apply(cluster, apart())
    assert cluster.conditions()["Ready"] == ("False", "Forbidden")
    assert "create inferencedeployments.tonnage.dev" in cluster.message("Ready")
    assert cluster.conditions()["Available"][0] == "True"
    cluster.api.clear_faults()
    await cluster.wait(60)
    assert cluster.conditions() == SETTLED


async def test_an_endpoint_that_may_not_be_deleted_is_remembered() -> None:
    cluster = await served_apart()
    right = Right("delete", "tonnage.dev", "inferencedeployments", None)
    denied = ForbiddenError("403", right)
    cluster.api.fail_next("delete", denied, kind=INFERENCE_DEPLOYMENTS, times=1000)
    await apply(cluster, together())
    assert cluster.conditions()["Ready"] == ("False", "Forbidden")
    cluster.api.clear_faults()
    await cluster.wait(60)
    assert objects(cluster) == ["llama"]
    assert cluster.conditions() == SETTLED


async def test_a_refusal_of_the_api_server_is_reported_in_its_words() -> None:
    cluster = two_cards()
    refused = InvalidError("422: admission says no")
    cluster.api.fail_next("apply", refused, kind=INFERENCE_DEPLOYMENTS, times=1000)
    await apply(cluster, apart())
    assert cluster.conditions()["Accepted"] == ("False", "ChildRefused")
    assert "admission says no" in cluster.message("Accepted")
    assert set(ready_by_context(cluster)) == {"short", "long"}


# The end


async def test_an_endpoint_that_is_no_longer_asked_for_goes_with_its_children() -> None:
    cluster = await served_apart()
    await apply(cluster, together())
    assert objects(cluster) == ["llama"]
    assert [body["metadata"]["name"] for body in cluster.api.objects(SERVICES)] == ["llama"]
    assert cluster.pods(LONG) == []
    assert "endpoints" not in cluster.status()
    assert set(contexts(cluster, PODS).values()) == {None}
    assert cluster.conditions() == SETTLED
    assert LONG not in {name for _, name in cluster.stores.owners()}
    before = len(cluster.api.calls)
    await cluster.resync()
    assert cluster.api.calls[before:] == []


async def test_an_endpoint_created_before_a_crash_is_not_forgotten() -> None:
    cluster = two_cards()
    cluster.api.fail_next("apply", Crash(), kind=INFERENCE_DEPLOYMENTS, after=True)
    cluster.apply("llama", apart())
    await cluster.reconcile("llama")
    with pytest.raises(Crash):
        await cluster.reconcile("llama")
    assert objects(cluster) == ["llama", LONG]
    cluster.apply("llama", together())
    cluster.start_operator()
    await cluster.settle()
    assert objects(cluster) == ["llama"]


async def test_the_endpoint_serves_until_its_owner_serves_all() -> None:
    cluster = await served_apart()
    cluster.behaviours["llama"] = loading
    await apply(cluster, together(engine={"vllm": {"maxNumSeqs": 77}}))
    assert objects(cluster) == ["llama", LONG]
    assert set(ready_by_context(cluster)) == {"short", "long"}
    del cluster.behaviours["llama"]
    await cluster.settle()
    assert objects(cluster) == ["llama"]
    assert "endpoints" not in cluster.status()


async def test_the_endpoint_serves_while_its_owner_waits_for_approval() -> None:
    cluster = await served_apart()
    await apply(cluster, together(approval="Manual"))
    assert cluster.conditions()["Placed"] == ("False", "AwaitingApproval")
    assert objects(cluster) == ["llama", LONG]
    approve(cluster)
    await cluster.settle()
    assert objects(cluster) == ["llama"]


async def test_the_endpoint_goes_at_once_where_its_owner_lacks_capacity() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 2})
    await apply(cluster, apart())
    assert cluster.conditions() == SETTLED
    await apply(cluster, together(replicas=2, rollout={"strategy": "Surge"}))
    assert objects(cluster) == ["llama"]
    assert cluster.conditions() == SETTLED
    assert len(cluster.pods()) == 2


async def test_a_recreated_object_waits_for_the_end_of_the_old_ones_endpoint() -> None:
    cluster = await served_apart()
    old = endpoint(cluster)
    cluster.delete("llama")
    cluster.apply("llama", apart())
    await cluster.reconcile("llama")
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert endpoint(cluster) == old
    cluster.api.collect_garbage()
    await cluster.wait(30)
    assert cluster.conditions() == cluster.conditions(LONG) == SETTLED
    assert endpoint(cluster)["metadata"]["uid"] != old["metadata"]["uid"]


async def test_an_endpoint_that_is_on_its_way_out_is_not_deleted_again() -> None:
    cluster = await served_apart()
    body = endpoint(cluster)
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    cluster.apply("llama", together())
    before = cluster.api.counts()["delete"]
    await cluster.settle()
    assert cluster.api.counts()["delete"] == before
    assert set(ready_by_context(cluster)) == {"short", "long"}
    cluster.api.remove(INFERENCE_DEPLOYMENTS, NAMESPACE, LONG)
    await cluster.settle()
    assert "endpoints" not in cluster.status()


async def test_a_deleted_endpoint_is_created_again() -> None:
    cluster = await served_apart()
    cluster.delete(LONG)
    await cluster.settle()
    assert cluster.conditions() == cluster.conditions(LONG) == SETTLED


async def test_the_endpoint_is_garbage_collected_with_its_owner() -> None:
    cluster = await served_apart()
    cluster.delete("llama")
    await cluster.settle()
    assert objects(cluster) == cluster.deployments() == []


async def test_an_operator_that_knows_no_model_yet_clears_no_status() -> None:
    cluster = two_cards()
    source = {"source": {"huggingFace": {"repo": "acme/llama"}}}
    cluster.hub.answer = checkpoint_from_inline(InlineSource(config=apart_config()))
    await apply(cluster, {**apart(), "model": source})
    assert cluster.conditions() == cluster.conditions(LONG) == SETTLED
    cluster.hub.answer = ModelPending("reading the model's files")
    cluster.start_operator()
    await cluster.settle()
    assert objects(cluster) == ["llama", LONG]
    assert set(ready_by_context(cluster)) == {"short", "long"}


def apart_config() -> Object:
    config: Object = apart()["model"]["source"]["inline"]["config"]
    return config


async def test_a_pause_of_the_owner_is_one_of_the_endpoint() -> None:
    cluster = await served_apart()
    await apply(cluster, apart(rollout={"paused": True}))
    assert endpoint(cluster)["spec"]["rollout"] == {"paused": True}
    assert set(ready_by_context(cluster)) == {"short", "long"}


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("llama", "llama-long"),
        ("a" * 58, "a" * 58 + "-long"),
        ("a" * 63, "a" * 54 + "-"),
    ],
    ids=["short", "just short enough", "too long"],
)
def test_the_name_of_the_endpoint_is_a_dns_label(name: str, want: str) -> None:
    endpoint_name = long_endpoint_name(name)
    assert endpoint_name.startswith(want)
    assert len(endpoint_name) <= 63
    assert endpoint_name != long_endpoint_name(name[:-1])
