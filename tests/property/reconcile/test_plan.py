"""Any observation gives a plan, without an exception, and always the same one."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fleets.claims import claims_in_status
from tests.support.fleets.gpu_nodes import MI355X, amd_node, mixed_fleet, snapshot_of
from tests.support.fleets.placing import DEEPSEEK_V3, LLAMA_8B, LLAMA_70B
from tests.support.in_memory.cluster import WORLD
from tests.support.in_memory.cluster import spec_of as raw_spec
from tonnage.api.conditions import MAX_MESSAGE_BYTES, Reason
from tonnage.api.names import (
    ANNOTATION_PLACED_FOR,
    ANNOTATION_PLACEMENT,
    ANNOTATION_TEMPLATE,
    LABEL_PLACEMENT,
)
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.checkpoint.lookup import ModelPending, ModelUnavailable
from tonnage.fit.model import Footprint
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import GpuPod, Reservation
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod, ContainerEnd
from tonnage.reconcile.observation.children import Child, read_deployment
from tonnage.reconcile.observation.digests import placement_digest
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.optional_child import OptionalChildError
from tonnage.reconcile.plan import make_plan

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = ("chat", "llama")
PLACEMENTS = ["mi300x", "h100-sxm-80gb", "l40s", ""]
POOLS = ["amd-mi300x", "nvidia-h100-sxm-80gb", "nvidia-l40s", "", "gone"]

names = st.sampled_from(["llama-mi300x", "llama-h100-sxm-80gb", "llama-l40s", "other"])
times = st.integers(-10_000, 10_000).map(lambda seconds: NOW + timedelta(seconds=seconds))
words = st.text(max_size=40) | st.just("模" * 3000)

specs = st.builds(
    lambda replicas, workload, placement, more: parse_spec(
        raw_spec(replicas=replicas, workload=workload, placement=placement, **more)
    ),
    st.integers(0, 70) | st.none(),
    st.fixed_dictionaries(
        {"maxModelLen": st.sampled_from([1, 4096, 131072, 100_000_000])},
        optional={
            "concurrency": st.integers(1, 5000),
            "inputTokens": st.integers(1, 100_000),
            "outputTokens": st.integers(1, 100_000),
        },
    ),
    st.fixed_dictionaries(
        {"policy": st.sampled_from(["LowestCost", "FewestGPUs", "HighestThroughput"])},
        optional={
            "accelerators": st.lists(st.sampled_from(["mi300x", "l40s", "nonsense"]), max_size=2),
            "poolSelector": st.just({"matchLabels": {"team": "a"}}),
            "fallback": st.sampled_from([{"after": "0s"}, {"after": "99999999999999h"}]),
            "allow": st.lists(st.text(max_size=5), max_size=2),
        },
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "rollout": st.sampled_from(
                [{"strategy": name} for name in ("Auto", "Surge", "Recreate")]
                + [{"restartedAt": "2026-01-01T00:00:00Z"}, {"paused": True}]
                + [{"progressDeadline": "99999999h", "maxUnavailable": 9}]
            ),
            "approval": st.sampled_from(["Automatic", "Manual"]),
            "approvedPlan": st.just("0123456789abcdef"),
            "gateway": st.sampled_from(
                [{}, {"inferencePool": {"endpointPickerRef": {"name": "x", "port": {"number": 1}}}}]
            ),
            "quantization": st.sampled_from(["auto", "fp8", "nonsense"]),
            "kvCacheDtype": st.sampled_from(["auto", "fp8"]),
            "engine": st.fixed_dictionaries(
                {
                    "vllm": st.fixed_dictionaries(
                        {},
                        optional={
                            "version": st.sampled_from(["v0.27.1", "v0.32.0", "v9.9.9"]),
                            "gpuMemoryUtilization": st.sampled_from([0.01, 0.5, 1.0]),
                            "extraArgs": st.lists(
                                st.sampled_from(["--seed=1", "--port=1", "--x", ""]), max_size=2
                            ),
                            "maxNumSeqs": st.integers(1, 10_000),
                            "maxNumBatchedTokens": st.integers(1, 10_000_000),
                            "enforceEager": st.booleans(),
                        },
                    )
                }
            ),
        },
    ),
)
models = st.sampled_from(
    [
        LLAMA_8B,
        LLAMA_70B,
        DEEPSEEK_V3,
        ModelPending("reading"),
        ModelUnavailable(Reason.MODEL_NOT_FOUND, "模" * 2000, 15.0),
    ]
)
fleets = st.builds(
    lambda nodes, pods, reservations: Fleet.of(
        snapshot_of(nodes, pods=pods, reservations=reservations), WORLD.catalog
    ),
    st.sampled_from(
        [
            [],
            mixed_fleet(),
            mixed_fleet(cordoned=True),
            [amd_node("mi300x-0", gpus=1)],
            [amd_node("mi355x-0", MI355X), amd_node("x", gpus=0)],
        ]
    ),
    st.lists(
        st.builds(
            GpuPod,
            uid=st.uuids().map(str),
            node=st.sampled_from(["mi300x-0", "h100-0", "gone"]) | st.none(),
            requests=st.dictionaries(
                st.sampled_from(["amd.com/gpu", "nvidia.com/gpu"]), st.integers(0, 9), max_size=1
            ),
            owner=st.sampled_from([OWNER, ("other", "x")]) | st.none(),
            placement=st.sampled_from(PLACEMENTS),
        ),
        max_size=4,
    ).map(tuple),
    st.lists(
        st.builds(
            Reservation,
            owner=st.sampled_from([OWNER, ("other", "x")]),
            placement=st.sampled_from(PLACEMENTS),
            pool=st.sampled_from(POOLS),
            footprint=st.builds(Footprint, st.integers(1, 10**9), st.integers(1, 4)),
            replicas=st.integers(0, 2**31),
        ),
        max_size=3,
    ).map(tuple),
)
pods = st.builds(
    ChildPod,
    name=st.text(max_size=10),
    placement=st.sampled_from(PLACEMENTS),
    created=times,
    node=st.sampled_from(["mi300x-0", "h100-0", "gone"]) | st.none(),
    ready=st.booleans(),
    deleting=st.booleans(),
    restarts=st.integers(0, 1000),
    gpus=st.integers(0, 8),
    waiting=st.none() | st.tuples(st.sampled_from(["CrashLoopBackOff", "ErrImagePull", ""]), words),
    end=st.none() | st.builds(ContainerEnd, st.integers(-1, 255), words, words),
    ended_before=st.booleans(),
    unschedulable=st.none() | words,
)


@st.composite
def deployments(draw: Any, digest: str) -> Any:
    wanted, paused = draw(st.integers(0, 5)), draw(st.booleans())
    place = draw(
        st.sampled_from(
            [
                "",
                "[" * 5000,
                '{"pool":"amd-mi300x","tensorParallelSize":1,"pipelineParallelSize":1}',
                '{"pool":"nvidia-h100-sxm-80gb","tensorParallelSize":4}',
                '{"pool":"gone","tensorParallelSize":1000000000000}',
            ]
        )
    )
    return read_deployment(
        {
            "metadata": {
                "name": draw(names),
                "namespace": OWNER[0],
                "ownerReferences": [{"uid": "u0", "controller": True}],
                "uid": "u1",
                "resourceVersion": "1",
                "generation": draw(st.integers(1, 2)),
                "creationTimestamp": draw(times).isoformat(),
                "labels": {LABEL_PLACEMENT: draw(st.sampled_from(PLACEMENTS))},
                "annotations": {
                    ANNOTATION_PLACEMENT: place,
                    ANNOTATION_PLACED_FOR: draw(st.sampled_from([digest, "older", ""])),
                    ANNOTATION_TEMPLATE: "t",
                },
            },
            "spec": {
                "replicas": wanted,
                "strategy": {"type": "Recreate"},
                "paused": paused,
                "template": {"metadata": {"labels": {}}, "spec": {"containers": []}},
            },
            "status": {
                "observedGeneration": 1,
                "replicas": wanted,
                "updatedReplicas": draw(st.integers(0, 5)),
                "readyReplicas": draw(st.integers(0, 5)),
            },
        }
    )


conditions = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["Accepted", "Placed", "Ready", "Stalled", "InferencePoolApplied"]
            ),
            "status": st.sampled_from(["True", "False", "Unknown"]),
            "reason": st.just("X"),
            "message": words,
            "observedGeneration": st.just(2),
            "lastTransitionTime": times.map(datetime.isoformat),
        }
    ),
    max_size=4,
)


place = {
    "pool": "amd-mi300x",
    "accelerator": "mi300x",
    "tensorParallelSize": 1,
    "pipelineParallelSize": 1,
    "image": "vllm:1",
}
memory = dict.fromkeys(
    ["deviceGiB", "budgetGiB", "weightsGiB", "activationGiB", "nonTorchGiB", "graphGiB"], 1.0
)
last_ready_plans = st.builds(
    lambda template, name, replicas: {
        "hash": "0" * 16,
        "generation": 1,
        "template": template,
        "placement": {
            **place,
            "name": name,
            "gpusPerReplica": 1,
            "replicas": replicas,
            "readyReplicas": 0,
            "reason": "LowestCost",
            "message": "",
            "memory": {**memory, "kvCacheGiB": 1.0},
            "kvCacheTokens": 1,
        },
    },
    st.sampled_from(["t", "older"]),
    st.sampled_from(PLACEMENTS),
    st.integers(0, 5),
) | st.just({"hash": 7})
failed_plans = st.builds(
    lambda reason, message, circumstances: {
        **place,
        "hash": "1" * 16,
        "reason": reason,
        "message": message,
        "at": NOW.isoformat(),
        "circumstances": circumstances,
    },
    st.sampled_from(["OutOfMemory", "CrashLooping", "X"]),
    words,
    words,
) | st.just({})


inference_pools = st.sampled_from(
    [
        None,
        Child("llama", "u9", "1", {"metadata": {"name": "llama"}, "spec": {}}),
        OptionalChildError(Reason.KIND_MISSING, "模" * 3000),
        OptionalChildError(Reason.UNREACHABLE, "503", passing=True),
    ]
)


@st.composite
def observations(draw: Any) -> Observation:
    spec = draw(specs | st.just(InvalidSpecError("spec.x: no")))
    invalid = isinstance(spec, InvalidSpecError)
    digest = "" if invalid else placement_digest(spec)
    children = draw(st.lists(deployments(digest), max_size=3))
    seen = draw(st.lists(pods, max_size=4))
    return Observation(
        key=Key(*OWNER),
        uid="u0",
        resource_version="1",
        generation=2,
        created=NOW,
        spec=spec,
        model=None if invalid else draw(models),
        previous_status=draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "observedGeneration": st.sampled_from([1, 2]),
                    "conditions": conditions,
                    "placements": st.sampled_from([[], [{"name": "old"}]]),
                    "desiredReplicas": st.integers(0, 3),
                    "lastReadyPlan": last_ready_plans,
                    "failedPlans": st.lists(failed_plans, max_size=2) | st.just(7),
                },
            )
        ),
        deployments=tuple({one.child.name: one for one in children}.values()),
        inference_pool=draw(inference_pools),
        queue=draw(st.sampled_from([None, "gold"])),
        pods=tuple(seen),
        logs=draw(st.dictionaries(st.sampled_from([pod.name for pod in seen] or [""]), words)),
    )


@settings(max_examples=150, deadline=None)
@given(observations(), fleets, times)
def test_any_observation_gives_a_deterministic_plan(
    observation: Observation, fleet: Fleet, now: datetime
) -> None:
    plan = make_plan(observation, fleet, WORLD, now)
    assert plan == make_plan(observation, fleet, WORLD, now)
    if not plan.status.omitted_candidates:
        assert plan.claims == claims_in_status(plan, OWNER)
    types = [condition.type for condition in plan.status.conditions]
    assert len(types) == len(set(types))
    for condition in plan.status.conditions:
        assert len(condition.message.encode()) <= MAX_MESSAGE_BYTES
    ready = next(one for one in plan.status.conditions if one.type == "Ready")
    assert ready.status != "True" or not plan.actions or plan.status.desired_replicas == 0
    assert plan.requeue.seconds is None or plan.requeue.seconds > 0
