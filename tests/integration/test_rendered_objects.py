"""Rendered objects on a real API server: stored unchanged, and unchanged by a second apply."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.harness.admin import Admin
from e2e.harness.leader_worker_set import LeaderWorkerSetController
from e2e.harness.rest import ApiError

GOLDEN = Path(__file__).parents[1] / "golden" / "render"
CASES = sorted(path.name for path in GOLDEN.glob("*.output.yaml"))


@pytest.fixture(scope="module", autouse=True)
def _leader_worker_sets(admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The controller of LeaderWorkerSet. Its webhooks are not tried here: they add a null to each
    template, for which the API server counts a new generation with every apply."""
    with LeaderWorkerSetController(admin, tmp_path_factory.mktemp("lws")):
        yield


@pytest.mark.parametrize("case", CASES)
def test_what_is_applied_is_stored_as_rendered_and_not_written_again(
    case: str, admin: Admin, namespace: str
) -> None:
    for child in load(case, namespace):
        assert not differences(apply(admin, child), child)
        before, after = admin.until("a quiet moment", lambda child=child: apply_again(admin, child))
        assert after == before, f"{child['kind']} was written although nothing changed"


def test_any_deployment_becomes_any_other(admin: Admin, namespace: str) -> None:
    labels = {"tonnage.dev/placement": "changing"}
    loaded = [load(case, namespace)[0] for case in CASES]
    deployments = [child for child in loaded if child["kind"] == "Deployment"]
    for deployment in [*deployments, *reversed(deployments)]:
        deployment["metadata"]["name"] = "changing"
        deployment["spec"]["selector"]["matchLabels"] |= labels
        deployment["spec"]["template"]["metadata"]["labels"] |= labels
        assert not differences(apply(admin, deployment), deployment)


def load(case: str, namespace: str) -> list[dict[str, Any]]:
    """The golden objects; without their owner, whose absence the garbage collector would notice."""
    children = list(yaml.safe_load_all((GOLDEN / case).read_text(encoding="utf-8")))
    for child in children:
        child["metadata"]["namespace"] = namespace
        del child["metadata"]["ownerReferences"]
    return children


def apply(admin: Admin, child: dict[str, Any]) -> dict[str, Any]:
    """Apply as the operator does, but refuse unknown fields; the answer is what is stored."""
    metadata = child["metadata"]
    path = admin.resource(child["kind"]).path(metadata["namespace"], metadata["name"])
    query = {"fieldManager": "tonnage", "force": "true", "fieldValidation": "Strict"}
    content_type = "application/apply-patch+yaml"
    return admin.rest.request("PATCH", path, child, query=query, content_type=content_type)


def apply_again(admin: Admin, child: dict[str, Any]) -> tuple[str, str] | None:
    """The resourceVersion before and after; None when a controller wrote in between."""
    live = admin.get(child["kind"], child["metadata"]["name"])
    assert live is not None
    version = live["metadata"]["resourceVersion"]
    metadata = {**child["metadata"], "resourceVersion": version}
    try:
        stored = apply(admin, {**child, "metadata": metadata})
    except ApiError as error:
        if error.code == 409:
            return None
        raise
    return version, stored["metadata"]["resourceVersion"]


def differences(stored: Any, rendered: Any, path: str = "") -> list[str]:
    """Where the stored object lacks what was rendered or has something else in its place."""
    if isinstance(rendered, dict) and isinstance(stored, dict):
        return [
            difference
            for key, value in rendered.items()
            for difference in differences(stored.get(key), value, f"{path}.{key}")
        ]
    if isinstance(rendered, list) and isinstance(stored, list) and len(stored) == len(rendered):
        return [
            difference
            for index, (inner, value) in enumerate(zip(stored, rendered, strict=True))
            for difference in differences(inner, value, f"{path}[{index}]")
        ]
    return [] if stored == rendered else [f"{path}: stored {stored!r}, rendered {rendered!r}"]
