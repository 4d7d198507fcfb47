"""A Job downloads a model to a claim; pods are made afterwards, and all load the same commit.

The Job controller is the real one. KWOK ends the pods of Jobs by itself; the program of the Job
runs as a process in tests/integration/hub/test_checkpoint_download.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.plugin import Plugin
from e2e.journeys.user import User, condition, container, has
from e2e.models import inference
from e2e.volumes import CLAIM, bind_volume
from tests.support.foreign.hub_server import HubFile, HubServer
from tests.support.foreign.tiny_model import CONFIG, SHARDS

REPO = "acme/cached"
FILES = {"config.json": CONFIG, **SHARDS}
SLOWLY = {"metadata": {"annotations": {"e2e.tonnage.dev/complete-after": "15s"}}}


def cached(**spec: Any) -> Json:
    model = {
        "source": {"huggingFace": {"repo": REPO}},
        "cache": {"persistentVolumeClaim": {"claimName": CLAIM}},
    }
    return inference("cached", model=model, workload={"maxModelLen": 2048}, **spec)


def path_of(user: User) -> str:
    (deployment,) = user.children("deployments", "cached")
    path: str = container(deployment)["args"][0]
    return path


@pytest.fixture
def volume(user: User) -> Iterator[str]:
    """A volume that is bound to the claim."""
    name = f"{user.namespace}-models"
    bind_volume(user.admin, user.namespace, name)
    yield name
    user.admin.delete("persistentvolumes", name, timeout=None)


def test_the_pods_are_made_after_the_download_and_share_its_commit(
    fleet: UseFleet,
    user: User,
    volume: str,
    hub: HubServer,
    operator: OperatorProcess,
    plugin: Plugin,
) -> None:
    fleet("tiny")
    first = hub.add_repo(REPO, FILES)
    user.apply(cached(podTemplate=SLOWLY))
    status = user.wait("cached", has("Ready", "False", "DownloadingWeights"), timeout=90)
    assert (
        f"at commit {first[:12]} to PersistentVolumeClaim {CLAIM}"
        in (condition(status, "Ready")["message"])
    )
    assert user.children("deployments", "cached") == []
    (job,) = user.children("jobs", "cached")
    user.wait_ready("cached", timeout=180)
    assert path_of(user) == f"/models/acme--cached/{first}"

    newer = hub.add_repo(REPO, {**FILES, "LICENSE": HubFile.of("another one")})
    operator.stop()
    operator.start()
    status = user.wait("cached", lambda status: status.get("availableUpdate"), timeout=180)
    assert status["availableUpdate"]["message"] == f"commit of main from {first} to {newer}"
    assert path_of(user) == f"/models/acme--cached/{first}"

    user.forget("cached")
    assert f"from {first} to {newer}" in plugin.run("upgrade", "cached")
    status = user.wait("cached", has("Ready", "False", "DownloadingWeights"), timeout=90)
    assert has("Available")(status)
    user.wait_ready("cached", timeout=180)
    assert path_of(user) == f"/models/acme--cached/{newer}"
    user.admin.wait_gone("jobs", job["metadata"]["name"])


def test_a_failed_download_is_reported_and_made_again_by_hand(
    fleet: UseFleet, user: User, volume: str, hub: HubServer
) -> None:
    fleet("tiny")
    hub.add_repo(REPO, FILES)
    user.apply(cached(behaviour="crash-loop"))
    status = user.wait("cached", has("Ready", "False", "WeightsNotDownloaded"), timeout=240)
    assert "the Job goes on trying" in condition(status, "Ready")["message"]
    assert user.children("deployments", "cached") == []
    user.apply(cached())
    user.wait("cached", has("Accepted"))  # from now on, the operator makes the Job for this spec
    (job,) = user.children("jobs", "cached")
    # Its end is not awaited: the next one has the same name.
    user.admin.delete("jobs", job["metadata"]["name"], timeout=None)
    user.wait_ready("cached", timeout=180)


def test_a_claim_that_is_missing_is_named_before_a_job_is_made(
    fleet: UseFleet, user: User, hub: HubServer
) -> None:
    fleet("tiny")
    hub.add_repo(REPO, FILES)
    user.apply(cached())
    status = user.wait("cached", has("Ready", "False", "WeightsNotDownloaded"))
    message = condition(status, "Ready")["message"]
    assert message == f"PersistentVolumeClaim {user.namespace}/{CLAIM} not found; create it"
    assert has("Stalled")(status)
    assert user.children("jobs", "cached") == []
    name = f"{user.namespace}-models"
    bind_volume(user.admin, user.namespace, name)
    user.wait_ready("cached", timeout=240)
    user.admin.delete("persistentvolumes", name, timeout=None)
