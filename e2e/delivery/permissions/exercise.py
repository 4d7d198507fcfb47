"""An operator that uses each of its permissions once, and the roles that grant them."""

from __future__ import annotations

import pytest

from e2e.delivery.permissions.life import (
    BY_DRIVER,
    TOKENS,
    TWO_NODES,
    download_weights,
    learn_twice,
    live_a_life,
    serve_by_claims,
    serve_on_several_nodes,
)
from e2e.doubles.fixed_measurements import FixedMeasurements
from e2e.harness.admin import Admin
from e2e.harness.leader_worker_set import LeaderWorkerSetController
from e2e.harness.operator_process import NAMESPACE, ROOT, USER, OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import clear
from e2e.journeys.user import User
from e2e.models import inference
from e2e.nodes.fleet import apply_fleet
from e2e.rights import roles_of
from e2e.volumes import MOUNTED, bind_volume
from tests.support.foreign.hub_server import HubServer

BASE = ROOT / "manifests" / "base"
VOLUME = "exercised"
OLD_POOL: Json = {"groups": [{"name": "l40s", "count": 1, "accelerator": "l40s", "gpusPerNode": 4}]}
POOLS: Json = {
    "groups": [
        {"name": "mi300x", "count": 1, "accelerator": "mi300x", "gpusPerNode": 8},
        {"name": "h100", "count": 1, "accelerator": "h100-sxm-80gb", "gpusPerNode": 8},
    ]
}


@pytest.fixture(scope="session")
def exercised(
    control_plane: Stack, installed: Admin, tmp_path_factory: pytest.TempPathFactory
) -> int:
    """Everything that the operator ever does was done once; the mark in the log before it."""
    clear(installed)  # what an earlier test left would be requested too
    installed.until(
        "the authorizer to know the role",
        lambda: installed.allows(USER, "patch", "deployments.apps", "default"),
    )
    mark = installed.audit_mark()
    installed.delete("lease", "tonnage", NAMESPACE)
    apply_fleet(control_plane.access, OLD_POOL, prune=True)
    folder = tmp_path_factory.mktemp("rights")
    with FixedMeasurements(TOKENS) as measured, HubServer() as hub:
        environment = {"HF_ENDPOINT": hub.endpoint, "TONNAGE_PROMETHEUS_URL": measured.url}
        process = OperatorProcess(control_plane, folder, environment=environment)
        process.start()
        try:
            with installed.fresh_namespace("rights") as namespace:
                replace_a_discovered_pool(control_plane, installed)
                mount_a_volume(User(installed, namespace))
                download_weights(User(installed, namespace), hub)
                live_a_life(User(installed, namespace))
                learn_twice(User(installed, namespace), NAMESPACE)
                apply_fleet(control_plane.access, BY_DRIVER, prune=True)
                serve_by_claims(User(installed, namespace))
                apply_fleet(control_plane.access, TWO_NODES, prune=True)
                pki = control_plane.layout.pki
                with LeaderWorkerSetController(installed, folder / "lws", pki):
                    serve_on_several_nodes(User(installed, namespace))
        finally:
            process.close()
            clear(installed)
            installed.delete("persistentvolumes", VOLUME, timeout=None)
    return mark


def mount_a_volume(user: User) -> None:
    """A model mounts a bound claim."""
    bind_volume(user.admin, user.namespace, VOLUME)
    user.apply(inference("mounts", "llama-3.1-8b", podTemplate=MOUNTED))
    user.wait_ready("mounts")
    user.admin.delete("infd", "mounts")


def replace_a_discovered_pool(stack: Stack, admin: Admin) -> None:
    """Nodes of one accelerator go, and those of two others come. Until the operator has reported
    this fleet, there are pools of an earlier one."""
    selector = "tonnage.dev/discovered=true"

    def names() -> set[str]:
        return {
            pool["metadata"]["name"]
            for pool in admin.items("apool", selector=selector)
            if pool.get("status", {}).get("conditions")
        }

    admin.until("the pool to be made", lambda: names() == {"nvidia-l40s"})
    apply_fleet(stack.access, POOLS, prune=True)
    new = {"amd-mi300x", "nvidia-h100-sxm-80gb"}
    admin.until("its place to be taken", lambda: names() == new)


@pytest.fixture
def roles(installed: Admin) -> list[Json]:
    """The roles as they are shipped."""
    return roles_of(installed, BASE)
