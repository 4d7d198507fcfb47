"""The CRDs on a real API server: accepted, explained, and equivalent to the models."""

from pathlib import Path

import pytest

from e2e.harness.admin import Admin, condition
from e2e.harness.failure import HarnessError
from e2e.harness.rest import ApiError
from e2e.journeys.rollouts.test_changes import REFUSED_BY_THE_API_SERVER
from e2e.models import inference
from tonnage.api.names import GROUP
from tonnage.api.parse import InvalidSpecError, parse_spec

CRDS = Path(__file__).parent.parent.parent / "crds"
NAMES = (f"inferencedeployments.{GROUP}", f"acceleratorpools.{GROUP}")


@pytest.fixture(scope="module")
def defined(admin: Admin) -> Admin:
    admin.kubectl("apply", "--warnings-as-errors", "-f", str(CRDS))
    for name in NAMES:
        admin.wait_for("crd", name, condition("Established"))
    return admin


def test_the_api_server_accepts_the_crds_as_structural_without_a_warning(
    defined: Admin,
) -> None:
    for name in NAMES:
        crd = defined.get("crd", name)
        assert crd is not None
        reported = {entry["type"]: entry["status"] for entry in crd["status"]["conditions"]}
        assert reported == {"NamesAccepted": "True", "Established": "True"}


def explain(admin: Admin, path: str) -> str | None:
    try:
        return admin.kubectl("explain", path)
    except HarnessError:
        return None


@pytest.mark.parametrize(
    "path", ["infd", "infd.spec.workload.maxModelLen", "infd.status.candidates", "apool.spec"]
)
def test_kubectl_explains_every_field(defined: Admin, path: str) -> None:
    # The API server publishes the schema of a new CRD a moment after the CRD is established.
    text = defined.until("kubectl explain", lambda: explain(defined, path))
    description = text.partition("DESCRIPTION:")[2].strip()
    assert description
    assert "<empty>" not in description


@pytest.mark.parametrize("case", REFUSED_BY_THE_API_SERVER)
def test_what_the_api_server_refuses_the_models_refuse_too(
    defined: Admin, namespace: str, case: str
) -> None:
    spec, _ = REFUSED_BY_THE_API_SERVER[case]
    manifest = inference("bad", **spec)
    with pytest.raises(InvalidSpecError):
        parse_spec(manifest["spec"])
    with pytest.raises(ApiError):
        defined.apply(manifest)


def test_a_stored_object_has_no_more_than_its_user_wrote_and_plain_defaults(
    defined: Admin, namespace: str
) -> None:
    manifest = inference("plain", placement={"policy": "FewestGPUs"})
    (stored,) = defined.apply(manifest)
    added = {"approval": "Automatic", "kvCacheDtype": "auto", "quantization": "auto"}
    workload = {"inputTokens": 1000, "outputTokens": 200, **manifest["spec"]["workload"]}
    placement = {**manifest["spec"]["placement"], "tightFit": "Avoid"}
    wanted = {**manifest["spec"], **added, "workload": workload, "placement": placement}
    assert stored["spec"] == wanted
    defined.delete("infd", "plain")
