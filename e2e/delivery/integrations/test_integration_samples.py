"""Each object of manifests/integrations is accepted by the API server, by its own project's
schema."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from e2e.harness.admin import Admin
from e2e.harness.operator_process import ROOT
from e2e.harness.rest import ApiError, Json
from e2e.integrations import http_route_crd, inference_pool_crd, scaled_object_crd

SAMPLES = {
    f"{path.stem}/{manifest['kind']}": manifest
    for path in sorted((ROOT / "manifests" / "integrations").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))
}


@pytest.fixture(scope="module")
def integrations(installed: Admin) -> Iterator[Admin]:
    """The kinds of all integrations, deleted afterwards: nothing else may need them."""
    names = []
    for path in (http_route_crd(), inference_pool_crd(), scaled_object_crd()):
        (crd,) = installed.apply(path)
        names.append(crd["metadata"]["name"])
    yield installed
    for name in names:
        installed.delete("crd", name)


def dry_run(admin: Admin, body: Json) -> Json:
    """What would be stored; a field that the schema does not know is an error."""
    resource = admin.resource(body["kind"], body["apiVersion"])
    path = resource.path(admin.namespace, body["metadata"]["name"])
    query = {"fieldManager": "test", "dryRun": "All", "fieldValidation": "Strict"}
    content_type = "application/apply-patch+yaml"
    return admin.rest.request("PATCH", path, body, query=query, content_type=content_type)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_api_server_accepts_every_field_of_a_sample(
    integrations: Admin, namespace: str, name: str
) -> None:
    stored = dry_run(integrations, SAMPLES[name])
    assert stored["metadata"]["namespace"] == namespace


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_with_a_wrong_field_would_be_refused(
    integrations: Admin, namespace: str, name: str
) -> None:
    body = SAMPLES[name]
    with pytest.raises(ApiError, match="noSuchField"):
        dry_run(integrations, body | {"spec": body["spec"] | {"noSuchField": 1}})
