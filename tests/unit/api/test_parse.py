"""Specs as the operator and the command line parse them."""

from typing import Any

import pytest

from tonnage.api.parse import InvalidSpecError, parse_duration, parse_model, parse_spec
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.api.status import InferenceDeploymentStatus

GOOD: dict[str, Any] = {
    "model": {"source": {"inline": {"config": {}}}},
    "workload": {"maxModelLen": 8192},
}
QUEUED = {"metric": "gateway_queued", "matchLabels": {"model": "llama"}}


def test_an_absent_field_gets_its_default() -> None:
    spec = parse_spec(GOOD)
    assert spec.workload.concurrency == 1
    assert spec.placement.policy == "LowestCost"
    assert spec.placement.fallback.after == "10m"
    assert spec.replicas is None


def test_defaults_are_shared_and_not_copied() -> None:
    one, other = parse_spec(GOOD), parse_spec(GOOD)
    assert one == other
    assert one.placement is other.placement


@pytest.mark.parametrize("duration", ["1ms", "0.5s", "1h30m", "0s10ms", "00.10s"])
def test_a_latency_above_zero_may_be_written_as_any_duration(duration: str) -> None:
    spec = parse_spec(GOOD | {"scaling": {"targets": {"timeToFirstToken": duration}}})
    assert spec.scaling.targets is not None
    assert spec.scaling.targets.time_to_first_token == duration


def test_a_whole_number_may_be_a_float() -> None:
    """As Helm writes large numbers, and as the API server accepts them."""
    assert parse_spec(GOOD | {"workload": {"maxModelLen": 1.31072e05}}).workload.max_model_len == (
        131072
    )


def test_null_means_absent_as_for_the_api_server() -> None:
    spec = parse_spec(GOOD | {"replicas": None, "engine": {"vllm": {"image": None}}})
    assert spec == parse_spec(GOOD)


@pytest.mark.parametrize(
    ("change", "want_path", "want_words"),
    [
        ({"model": {"source": {}}}, "spec.model.source", "found none"),
        (
            {"model": {"source": {"inline": {"config": {}}, "configMap": {"name": "a"}}}},
            "spec.model.source",
            "found configMap, inline",
        ),
        (
            {"workload": {"maxModelLen": 0}},
            "spec.workload.maxModelLen",
            "expected at least 1, found 0",
        ),
        ({"workload": {}}, "spec.workload.maxModelLen", "is required"),
        ({"replicas": -1}, "spec.replicas", "found -1"),
        ({"replicas": "2"}, "spec.replicas", "expected a number, found '2'"),
        ({"replicas": True}, "spec.replicas", "expected a number, found True"),
        (
            {"rollout": {"paused": "yes"}},
            "spec.rollout.paused",
            "expected true or false, found 'yes'",
        ),
        ({"placement": {"policy": "Cheapest"}}, "spec.placement.policy", "LowestCost"),
        ({"placement": {"fallback": {"after": "soon"}}}, "spec.placement.fallback.after", "soon"),
        (
            {"scaling": {"minReplicas": 9, "maxReplicas": 3}},
            "spec.scaling",
            "minReplicas 9 is above maxReplicas 3",
        ),
        ({"scaling": {"minReplicas": 65}}, "spec.scaling", "above maxReplicas 64"),
        ({"scaling": {"minReplicas": 0}}, "spec.scaling.minReplicas", "found 0"),
        ({"scaling": {"targets": {}}}, "spec.scaling.targets", "found none"),
        (
            {"scaling": {"targets": {"gpuUtilisation": 0.8}}},
            "spec.scaling.targets.gpuUtilisation",
            "is not a field of this version",
        ),
        (
            {"scaling": {"targets": {"waitingRequests": 0}}},
            "spec.scaling.targets.waitingRequests",
            "found 0",
        ),
        (
            {"scaling": {"targets": {"kvCacheUsage": 80}}},
            "spec.scaling.targets.kvCacheUsage",
            "found 80",
        ),
        (
            {"scaling": {"targets": {"timeToFirstToken": "0s"}}},
            "spec.scaling.targets.timeToFirstToken",
            "found '0s'",
        ),
        (
            {"scaling": {"targets": {"timePerOutputToken": "0.0ms0s"}}},
            "spec.scaling.targets.timePerOutputToken",
            "found '0.0ms0s'",
        ),
        (
            {
                "scaling": {"targets": {"runningRequests": 300}},
                "engine": {"vllm": {"maxNumSeqs": 256}},
            },
            "spec",
            "scaling.targets.runningRequests 300 is above engine.vllm.maxNumSeqs 256",
        ),
        (
            {"scaling": {"scaleToZero": {"queuedRequests": QUEUED}}},
            "spec.scaling",
            "scaleToZero is set and targets is not",
        ),
        (
            {"scaling": {"targets": {"waitingRequests": 1}, "scaleToZero": {"after": "15m"}}},
            "spec.scaling.scaleToZero.queuedRequests",
            "is required",
        ),
        (
            {
                "scaling": {
                    "targets": {"waitingRequests": 1},
                    "scaleToZero": {"queuedRequests": QUEUED | {"matchLabels": {}}},
                }
            },
            "spec.scaling.scaleToZero.queuedRequests.matchLabels",
            "expected a length of at least 1",
        ),
        (
            {
                "scaling": {
                    "targets": {"waitingRequests": 1},
                    "scaleToZero": {"queuedRequests": QUEUED | {"metric": "up) or vector(1"}},
                }
            },
            "spec.scaling.scaleToZero.queuedRequests.metric",
            "found 'up) or vector(1'",
        ),
        ({"gpus": 4}, "spec.gpus", "is not a field of this version"),
        (
            {"template": {"spec": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}}},
            "spec.template.spec.volumes[0]",
            "not a field",
        ),
        (
            {"engine": {"vllm": {"env": [{"name": "A", "value": "1", "valueFrom": {}}]}}},
            "spec.engine.vllm.env[0]",
            "exactly one of",
        ),
        (
            {"engine": {"vllm": {"gpuMemoryUtilization": 1.5}}},
            "spec.engine.vllm.gpuMemoryUtilization",
            "found 1.5",
        ),
        (
            {"engine": {"sglang": {"memFractionStatic": 1}}},
            "spec.engine.sglang.memFractionStatic",
            "expected less than 1",
        ),
        (
            {
                "model": {
                    "source": {
                        "persistentVolumeClaim": {
                            "claimName": "models",
                            "path": "../etc",
                            "facts": {"configMap": {"name": "facts"}},
                        }
                    }
                }
            },
            "spec.model.source.persistentVolumeClaim.path",
            "../etc",
        ),
    ],
)
def test_the_error_of_an_invalid_spec_has_the_field_and_its_value(
    change: dict[str, Any], want_path: str, want_words: str
) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse_spec(GOOD | change)
    assert want_path in str(refused.value)
    assert want_words in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        (None, "spec: expected an object, found none"),
        (5, "spec: expected an object, found 5"),
        ("spec", "spec: expected an object, found 'spec'"),
        ([], "spec: expected an object, found a list"),
        ({"model": "llama"}, "spec.model: expected an object, found 'llama'; "),
    ],
)
def test_a_value_that_is_not_a_spec_is_refused(raw: object, want: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse_spec(raw)
    assert str(refused.value).startswith(want)


def test_the_message_for_many_mistakes_is_short() -> None:
    with pytest.raises(InvalidSpecError, match="and 15 more"):
        parse_spec(GOOD | {f"field{number}": "x" * 10_000 for number in range(20)})


@pytest.mark.parametrize(
    ("toleration", "want_words"),
    [
        ({}, "every key needs operator Exists"),
        ({"operator": "Equal", "value": "x"}, "every key needs operator Exists"),
        ({"key": "a", "operator": "Exists", "value": "b"}, "takes no value"),
        ({"key": "a", "tolerationSeconds": 5}, "needs effect NoExecute"),
    ],
)
def test_a_toleration_that_no_pod_may_have_is_refused_with_the_pool(
    toleration: dict[str, Any], want_words: str
) -> None:
    raw = {"nodeSelector": {"a": "b"}, "tolerations": [toleration]}
    with pytest.raises(InvalidSpecError, match=rf"tolerations\[0\]: .*{want_words}"):
        parse_model(AcceleratorPoolSpec, raw, "spec")


def test_the_price_of_a_pool_is_a_decimal_string() -> None:
    raw = {"nodeSelector": {"a": "b"}, "costPerGPUHour": "1.99"}
    assert parse_model(AcceleratorPoolSpec, raw, "spec").cost_per_gpu_hour == "1.99"
    with pytest.raises(InvalidSpecError, match="costPerGPUHour"):
        parse_model(AcceleratorPoolSpec, raw | {"costPerGPUHour": "cheap"}, "spec")


@pytest.mark.parametrize(
    ("text", "want_seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("250ms", 0.25)]
)
def test_durations_are_parsed_as_kubernetes_writes_them(text: str, want_seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(want_seconds)


def test_unknown_fields_of_a_newer_status_are_ignored() -> None:
    conditions = [
        {
            "type": "Ready",
            "status": "True",
            "observedGeneration": 3,
            "lastTransitionTime": "2026-11-22T05:30:00Z",
            "reason": "Serving",
            "message": "",
            "severity": "of a newer version",
        }
    ]
    newer = {"observedGeneration": 3, "conditions": conditions, "forecast": {"tokens": 7}}
    status = parse_model(InferenceDeploymentStatus, newer, "status")
    assert status.observed_generation == 3
    assert [condition.type for condition in status.conditions] == ["Ready"]
