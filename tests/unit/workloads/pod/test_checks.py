"""Settings of a spec that clash with those that Tonnage renders."""

from typing import Any

import pytest

from tests.golden.render.inputs import make_deployment, make_spec, pod_of
from tonnage.engines.errors import (
    ForbiddenMetadataError,
    LabelSyntaxError,
    RenderError,
    ReservedVariableError,
    ResourceError,
    VolumeError,
)
from tonnage.workloads.pod.template import check_template


def spec_with(**template: Any) -> Any:
    return make_spec(template=template)


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize(
    "key",
    [
        "argocd.argoproj.io/instance",
        "argocd.argoproj.io/tracking-id",
        "kubectl.kubernetes.io/last-applied-configuration",
        "kustomize.toolkit.fluxcd.io/name",
        "leaderworkerset.sigs.k8s.io/group-index",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/managed-by",
        "tonnage.dev/placement",
        "container.apparmor.security.beta.kubernetes.io/vllm",
        "pod-template-hash",
    ],
)
def test_reserved_keys_are_refused(kind: str, key: str) -> None:
    with pytest.raises(ForbiddenMetadataError) as refused:
        check_template(spec_with(metadata={kind: {"team": "a", key: "x"}}))
    assert refused.value.field == f"spec.template.metadata.{kind}"
    assert refused.value.key == key
    assert key in str(refused.value)


@pytest.mark.parametrize(
    "key", ["team", "app", "app.kubernetes.io/part-of", "nottonnage.dev/x", "argoproj.io/x"]
)
def test_other_keys_are_allowed(key: str) -> None:
    spec = spec_with(metadata={"labels": {key: "x"}, "annotations": {key: "y"}})
    check_template(spec)
    metadata = make_deployment(spec)["spec"]["template"]["metadata"]
    assert metadata["labels"][key] == "x"
    assert metadata["annotations"] == {key: "y"}


BAD_KEYS = ["a b", "-a", "a.", "a/b/c", "/a", "A.example/a", "a" * 64, f"{'a' * 254}/b", "é"]
BAD_VALUES = ["/", "a b", "-a", "a.", "a" * 64, "é", "a\n"]


def refusal_of(**template: Any) -> LabelSyntaxError:
    with pytest.raises(LabelSyntaxError) as refused:
        check_template(spec_with(**template))
    return refused.value


@pytest.mark.parametrize("key", BAD_KEYS)
def test_keys_that_kubernetes_does_not_take_are_refused(key: str) -> None:
    for kind in ("labels", "annotations"):
        if (kind, key) != ("annotations", "A.example/a"):  # the API server takes its lower case
            assert refusal_of(metadata={kind: {key: "x"}}).field == f"spec.template.metadata.{kind}"
    refused = refusal_of(spec={"tolerations": [{"key": "sku"}, {"key": key}]})
    assert refused.field == "spec.template.spec.tolerations[1].key"
    assert "expected at most 63 letters" in str(refused)


@pytest.mark.parametrize("value", BAD_VALUES)
def test_values_that_kubernetes_does_not_take_are_refused(value: str) -> None:
    refused = refusal_of(metadata={"labels": {"team": value}})
    assert refused.field == "spec.template.metadata.labels[team]"
    assert repr(value[:80]) in str(refused)
    if len(value) <= 63:
        spec = {"tolerations": [{"key": "sku", "value": value}]}
        assert refusal_of(spec=spec).field == "spec.template.spec.tolerations[0].value"


@pytest.mark.parametrize("value", ["", "a", "A_b-c.d", "a" * 63])
def test_values_that_kubernetes_takes_are_allowed(value: str) -> None:
    tolerations = [{"key": "example.com/sku", "value": value}]
    check_template(
        spec_with(metadata={"labels": {"team": value}}, spec={"tolerations": tolerations})
    )


@pytest.mark.parametrize(
    "variable",
    [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "AMD_VISIBLE_DEVICES", "value": "all"},
        {
            "name": "NVIDIA_VISIBLE_DEVICES",
            "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}},
        },
    ],
)
def test_variables_that_select_gpus_are_refused(variable: dict[str, Any]) -> None:
    variables = [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}, variable]
    with pytest.raises(ReservedVariableError) as refused:
        check_template(make_spec(engine={"vllm": {"env": variables}}))
    assert refused.value.field == "spec.engine.vllm.env[1].name"
    assert refused.value.variable == variable["name"]
    check_template(make_spec(engine={"vllm": {"env": variables[:1]}}))


def empty_dir(name: str) -> dict[str, Any]:
    return {"name": name, "emptyDir": {}}


def mount(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "mountPath": path}


@pytest.mark.parametrize(
    ("volumes", "mounts", "want"),
    [
        pytest.param(
            [empty_dir("shm")], [], "'shm' is one of Tonnage's own", id="volume of the operator"
        ),
        pytest.param([empty_dir("model")], [], "'model' is one of Tonnage's", id="model volume"),
        pytest.param(
            [empty_dir("a"), empty_dir("a")], [], "name 'a' appears 2 times", id="volume twice"
        ),
        pytest.param([], [mount("a", "/a")], "no volume 'a'", id="mount without volume"),
        pytest.param(
            [empty_dir("a")],
            [mount("a", "/dev/shm/")],
            "'/dev/shm' is one of",
            id="mount of the operator",
        ),
        pytest.param(
            [empty_dir("a")], [mount("a", "//x/../models")], "'/models' is one of", id="model mount"
        ),
        pytest.param(
            [empty_dir("a")],
            [mount("a", "/a"), mount("a", "/a/")],
            "mountPath '/a' appears 2 times",
            id="path twice",
        ),
    ],
)
def test_volumes_that_clash_are_refused(
    volumes: list[dict[str, Any]], mounts: list[dict[str, Any]], want: str
) -> None:
    with pytest.raises(VolumeError, match=want) as refused:
        check_template(spec_with(spec={"volumes": volumes, "volumeMounts": mounts}))
    assert isinstance(refused.value, RenderError)
    assert refused.value.field.startswith("spec.template.spec.volume")


@pytest.mark.parametrize(
    ("request_", "limit", "want_refused"),
    [("2Gi", "1Gi", True), ("1.5Gi", "1536Mi", False), ("1G", "1Gi", False), ("2", "1999m", True)],
)
def test_a_request_above_its_limit_is_refused(
    request_: str, limit: str, want_refused: bool
) -> None:
    resources = {"requests": {"memory": request_, "cpu": "9"}, "limits": {"memory": limit}}
    spec = spec_with(spec={"resources": resources})
    if not want_refused:
        check_template(spec)
        return
    with pytest.raises(ResourceError, match=f"request {request_} is above limit {limit}"):
        check_template(spec)


def test_a_users_volume_can_replace_the_cache() -> None:
    claim = {"name": "mine", "persistentVolumeClaim": {"claimName": "c"}}
    spec = spec_with(spec={"volumes": [claim], "volumeMounts": [mount("mine", "/cache")]})
    check_template(spec)
    pod = pod_of(make_deployment(spec))
    assert [volume["name"] for volume in pod["volumes"]] == ["shm", "mine"]
    mounts = pod["containers"][0]["volumeMounts"]
    assert [each["mountPath"] for each in mounts] == ["/dev/shm", "/cache"]


def test_the_models_volume_is_read_only() -> None:
    facts = {"configMap": {"name": "facts"}}
    claim = {"claimName": "models", "path": "a", "facts": facts}
    pod = pod_of(make_deployment(make_spec(model={"source": {"persistentVolumeClaim": claim}})))
    volume = {"claimName": "models", "readOnly": True}
    assert {"name": "model", "persistentVolumeClaim": volume} in pod["volumes"]
    mounted = {"name": "model", "mountPath": "/models", "readOnly": True}
    assert mounted in pod["containers"][0]["volumeMounts"]


NEEDS_NO_RESTART: dict[str, dict[str, Any]] = {
    "how long a rollout may take": {"rollout": {"progressDeadline": "45m"}},
    "how many are replaced at a time": {"rollout": {"maxUnavailable": 3}},
    "whether they may be replaced now": {"rollout": {"paused": True}},
    "in which way they are replaced": {"rollout": {"strategy": "Recreate"}},
    "how many there are": {"replicas": 7},
    "how many there may be": {"scaling": {"maxReplicas": 9}},
    "who approves": {"approval": "Manual", "approvedPlan": "0123456789abcdef"},
    "when they leave their pool": {"placement": {"fallback": {"after": "1m"}}},
    "when they go to a cheaper one": {"placement": {"rebalance": {"policy": "WhenCheaperBy"}}},
    "what they may cost": {"placement": {"maxCostPerHour": "99"}},
    "how many requests are expected": {"workload": {"maxModelLen": 8192, "concurrency": 9}},
    "how long these are": {"workload": {"maxModelLen": 8192, "outputTokens": 999}},
    "objects of the Gateway API": {
        "gateway": {"inferencePool": {"endpointPickerRef": {"name": "x", "port": {"number": 1}}}}
    },
}


@pytest.mark.parametrize("change", NEEDS_NO_RESTART)
def test_a_setting_that_needs_no_restart_is_not_in_the_template(change: str) -> None:
    workload = {"workload": {"maxModelLen": 8192}}
    before = make_deployment(make_spec(**workload))
    after = make_deployment(make_spec(**{**workload, **NEEDS_NO_RESTART[change]}))
    assert after["spec"]["template"] == before["spec"]["template"]


def test_a_requested_restart_changes_the_template() -> None:
    before = make_deployment(make_spec(rollout={"restartedAt": "2026-01-01T00:00:00Z"}))
    after = make_deployment(make_spec(rollout={"restartedAt": "2026-01-02T00:00:00Z"}))
    assert after["spec"]["template"] != before["spec"]["template"]
