"""What a spec may not ask of its pods."""

from typing import Any

import pytest

from tests.golden.render.inputs import make_deployment, make_spec, pod_of
from tonnage.render.errors import ForbiddenMetadataError, RenderError, ResourceError, VolumeError
from tonnage.render.template import check_template


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
        "app.kubernetes.io/instance",
        "app.kubernetes.io/managed-by",
        "tonnage.dev/placement",
        "pod-template-hash",
    ],
)
def test_keys_of_others_are_refused(kind: str, key: str) -> None:
    with pytest.raises(ForbiddenMetadataError) as refused:
        check_template(spec_with(metadata={kind: {"team": "a", key: "x"}}))
    assert refused.value.field == f"spec.template.metadata.{kind}"
    assert refused.value.key == key
    assert key in str(refused.value)


@pytest.mark.parametrize(
    "key", ["team", "app", "app.kubernetes.io/part-of", "nottonnage.dev/x", "argoproj.io/x"]
)
def test_other_keys_are_the_users(key: str) -> None:
    spec = spec_with(metadata={"labels": {key: "x"}, "annotations": {key: "y"}})
    check_template(spec)
    metadata = make_deployment(spec)["spec"]["template"]["metadata"]
    assert metadata["labels"][key] == "x"
    assert metadata["annotations"] == {key: "y"}


def empty_dir(name: str) -> dict[str, Any]:
    return {"name": name, "emptyDir": {}}


def mount(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "mountPath": path}


@pytest.mark.parametrize(
    ("volumes", "mounts", "want"),
    [
        pytest.param([empty_dir("shm")], [], "'shm' is one of Tonnage's own", id="our volume"),
        pytest.param([empty_dir("model")], [], "'model' is one of Tonnage's", id="model volume"),
        pytest.param(
            [empty_dir("a"), empty_dir("a")], [], "name 'a' stands there 2 times", id="volume twice"
        ),
        pytest.param([], [mount("a", "/a")], "no volume 'a'", id="mount without volume"),
        pytest.param(
            [empty_dir("a")], [mount("a", "/dev/shm/")], "'/dev/shm' is one of", id="our mount"
        ),
        pytest.param(
            [empty_dir("a")], [mount("a", "//x/../models")], "'/models' is one of", id="model mount"
        ),
        pytest.param(
            [empty_dir("a")],
            [mount("a", "/a"), mount("a", "/a/")],
            "mountPath '/a' stands there 2 times",
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


def test_a_users_volume_can_take_the_place_of_the_cache() -> None:
    claim = {"name": "mine", "persistentVolumeClaim": {"claimName": "c"}}
    spec = spec_with(spec={"volumes": [claim], "volumeMounts": [mount("mine", "/cache")]})
    check_template(spec)
    pod = pod_of(make_deployment(spec))
    assert [volume["name"] for volume in pod["volumes"]] == ["shm", "mine"]
    mounts = pod["containers"][0]["volumeMounts"]
    assert [found["mountPath"] for found in mounts] == ["/dev/shm", "/cache"]


def test_the_models_volume_is_read_only() -> None:
    facts = {"configMap": {"name": "facts"}}
    claim = {"claimName": "models", "path": "a", "facts": facts}
    pod = pod_of(make_deployment(make_spec(model={"source": {"persistentVolumeClaim": claim}})))
    volume = {"claimName": "models", "readOnly": True}
    assert {"name": "model", "persistentVolumeClaim": volume} in pod["volumes"]
    mounted = {"name": "model", "mountPath": "/models", "readOnly": True}
    assert mounted in pod["containers"][0]["volumeMounts"]
