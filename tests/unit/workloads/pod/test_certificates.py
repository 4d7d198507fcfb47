"""The Job that downloads weights trusts the certificates that the pods of the object trust."""

from dataclasses import replace
from typing import Any

import pytest

from tests.golden.render.inputs import OWNER, make_checkpoint, make_option, make_spec
from tonnage.catalog.load import load_catalog
from tonnage.engines.inputs import RenderSettings
from tonnage.engines.replica import Replica
from tonnage.workloads.weights_job import render_weights_job

BUNDLE = {"name": "ca", "configMap": {"name": "corporate-ca"}}
MOUNT = {"name": "ca", "mountPath": "/etc/corporate"}
CACHED = {
    "source": {"huggingFace": {"repo": "org/m"}},
    "cache": {"persistentVolumeClaim": {"claimName": "models"}},
}


def job_of(
    variables: dict[str, str],
    volumes: tuple[dict[str, Any], ...] = (BUNDLE,),
    mounts: tuple[dict[str, Any], ...] = (MOUNT,),
    declared: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The spec of the pod of the Job."""
    pod = {
        "volumes": list(volumes),
        "containers": [{"name": "vllm", "volumeMounts": list(mounts)}],
    }
    env = [{"name": name, "value": value} for name, value in variables.items()]
    spec = make_spec(
        model=CACHED,
        engine={"vllm": {"env": env}},
        **({"podTemplate": {"spec": pod}} if volumes else {}),
    )
    checkpoint = replace(make_checkpoint(), revision="c" * 40)
    option = make_option(declared=declared)
    replica = Replica(OWNER, spec, checkpoint, option, load_catalog(), RenderSettings())
    rendered: dict[str, Any] = render_weights_job(replica)["spec"]["template"]["spec"]
    return rendered


def taken(pod: dict[str, Any]) -> tuple[set[str], list[Any], list[Any]]:
    """The variables with certificates, and the volumes and mounts that are not the Job's own."""
    (container,) = pod["containers"]
    names = {one["name"] for one in container["env"]}
    return (
        names & {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"},
        [one for one in pod["volumes"] if one["name"] not in ("model", "scratch")],
        [one for one in container["volumeMounts"] if one["name"] not in ("model", "scratch")],
    )


def test_the_volume_with_the_bundle_is_mounted_at_the_same_path() -> None:
    bundle = "/etc/corporate/ca.crt"
    pod = job_of({"SSL_CERT_FILE": bundle, "REQUESTS_CA_BUNDLE": bundle, "OTHER": bundle})
    assert taken(pod) == (
        {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"},
        [{"name": "certificates-0", "configMap": {"name": "corporate-ca"}}],
        [{"name": "certificates-0", "mountPath": "/etc/corporate", "readOnly": True}],
    )


def test_the_bundle_of_the_pool_is_taken_as_well() -> None:
    declared = {
        "nodeSelector": {"a": "b"},
        "env": [{"name": "SSL_CERT_FILE", "value": "/etc/corporate/ca.crt"}],
        "podTemplate": {
            "spec": {
                "volumes": [BUNDLE],
                "containers": [{"name": "vllm", "volumeMounts": [MOUNT]}],
            }
        },
    }
    variables, volumes, _ = taken(job_of({}, (), (), declared))
    assert variables == {"SSL_CERT_FILE"}
    assert [volume["configMap"]["name"] for volume in volumes] == ["corporate-ca"]


def test_the_deepest_mount_counts_and_others_are_left_out() -> None:
    volumes = (
        BUNDLE,
        {"name": "etc", "emptyDir": {}},
        {"name": "data", "secret": {"secretName": "data"}},
    )
    mounts = (
        {"name": "etc", "mountPath": "/etc/corporate"},
        {"name": "ca", "mountPath": "/etc/corporate/ca/", "subPath": "x"},
        {"name": "data", "mountPath": "/etc/corp"},
    )
    _, taken_volumes, taken_mounts = taken(
        job_of({"SSL_CERT_FILE": "/etc/corporate/ca/ca.crt"}, volumes, mounts)
    )
    assert [volume["configMap"]["name"] for volume in taken_volumes] == ["corporate-ca"]
    assert [mount["subPath"] for mount in taken_mounts] == ["x"]


def test_a_volume_with_the_name_of_one_of_the_jobs_is_no_clash() -> None:
    volumes = ({**BUNDLE, "name": "scratch"},)
    mounts = ({**MOUNT, "name": "scratch"},)
    pod = job_of({"SSL_CERT_FILE": "/etc/corporate/ca.crt"}, volumes, mounts)
    names = [volume["name"] for volume in pod["volumes"]]
    assert names == ["model", "scratch", "certificates-0"]


@pytest.mark.parametrize(
    ("source", "want"),
    [({"configMap": {"name": "ca"}}, True), ({"downwardAPI": {"items": []}}, False)],
)
def test_of_projected_volumes_only_bundles_are_taken(source: dict[str, Any], want: bool) -> None:
    volumes = ({"name": "ca", "projected": {"sources": [source]}},)
    variables, taken_volumes, _ = taken(job_of({"SSL_CERT_FILE": "/etc/corporate/ca"}, volumes))
    assert (bool(variables), bool(taken_volumes)) == (want, want)


def test_a_path_in_the_image_needs_no_volume() -> None:
    assert taken(job_of({"SSL_CERT_FILE": "/etc/ssl/own.pem"})) == ({"SSL_CERT_FILE"}, [], [])


@pytest.mark.parametrize(
    ("volume", "mount_path", "value"),
    [
        pytest.param({"emptyDir": {}}, "/etc/corporate", "/etc/corporate/ca.crt", id="other kind"),
        pytest.param(
            {"configMap": {"name": "ca"}}, "/tmp", "/tmp/ca.crt", id="path of the Job's own"
        ),
        pytest.param(
            {"configMap": {"name": "ca"}}, "/etc/corporate", "$(DIR)/ca.crt", id="other variable"
        ),
        pytest.param({"configMap": {"name": "ca"}}, "/etc/corporate", "ca.crt", id="relative"),
    ],
)
def test_a_variable_that_would_name_nothing_is_left_out(
    volume: dict[str, Any], mount_path: str, value: str
) -> None:
    volumes = ({"name": "ca", **volume},)
    pod = job_of({"SSL_CERT_FILE": value}, volumes, ({"name": "ca", "mountPath": mount_path},))
    assert taken(pod) == (set(), [], [])


@pytest.mark.parametrize("path", ["/tmp/ca.crt", "/models/ca.crt"])
def test_a_path_that_a_volume_of_the_job_hides_is_left_out(path: str) -> None:
    assert taken(job_of({"SSL_CERT_FILE": path}, (), ())) == (set(), [], [])


def test_a_list_of_folders_needs_all_of_them() -> None:
    folders = "/etc/corporate/one:/etc/ssl/certs"
    assert taken(job_of({"SSL_CERT_DIR": folders}))[0] == {"SSL_CERT_DIR"}
    other = ({"name": "ca", "emptyDir": {}},)
    assert taken(job_of({"SSL_CERT_DIR": folders}, other))[0] == set()


@pytest.mark.parametrize(
    "projected", ["text", {"sources": "text"}, {"sources": ["text"]}, {"sources": [None]}], ids=str
)
def test_a_volume_that_the_api_server_refuses_is_not_taken(projected: object) -> None:
    """The CRD does not check volumes; the API server does when the workload is written."""
    volume = {"name": "ca", "projected": projected}
    pod = job_of({"SSL_CERT_FILE": "/etc/corporate/ca.crt"}, volumes=(volume,))
    assert taken(pod) == (set(), [], [])


def test_a_path_in_a_volume_that_depends_on_the_pod_is_not_taken() -> None:
    mount = {**MOUNT, "subPathExpr": "$(POD_NAME)"}
    pod = job_of({"SSL_CERT_FILE": "/etc/corporate/ca.crt"}, mounts=(mount,))
    assert taken(pod) == (set(), [], [])
