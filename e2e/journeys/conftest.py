"""One operator for all journeys; a namespace, a fleet and a user for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from e2e.harness.admin import WAIT_SECONDS, Admin
from e2e.harness.credentials import write_private
from e2e.harness.leader_worker_set import LeaderWorkerSetController
from e2e.harness.operator_process import (
    NAMESPACE,
    ROOT,
    USER,
    OperatorProcess,
    RestartedOperator,
    install,
)
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.plugin import Plugin
from e2e.journeys.pools import await_pool
from e2e.journeys.user import User
from e2e.nodes.fleet import apply_fleet, load_fleet
from e2e.rights import denied, granted, refused_by_policies, roles_of
from tests.support.foreign.hub_server import HubServer

UseFleet = Callable[[str | Json], None]
Declare = Callable[[Json], Json]


@pytest.fixture(scope="session")
def installed(admin: Admin) -> Iterator[Admin]:
    """The cluster with CRDs, ServiceAccount, RBAC and admission policies as they are shipped. After
    all tests, no operator with the shipped role may have needed a right that the role does not
    grant, or may have written what the policies refuse."""
    install(admin)
    yield admin
    # A test that asks for what an optional role grants, without that role, is refused on purpose.
    # So is one that names a Secret which the operator may not read.
    shipped = {
        (right.group, right.resource) for right in granted(roles_of(admin, ROOT / "manifests/base"))
    } - {("", "secrets")}
    assert denied(admin.requests(USER), shipped) == []
    # Tests that act as the operator have another agent. No model runs in the operator's namespace.
    events = [
        event
        for event in admin.requests(USER)
        if event.get("userAgent", "").startswith("tonnage/")
        and event.get("objectRef", {}).get("namespace") not in (NAMESPACE, "kube-public")
    ]
    assert refused_by_policies(events) == []


@pytest.fixture(scope="session")
def hub() -> Iterator[HubServer]:
    """The Hugging Face Hub of the journeys: on loopback, with whatever a journey puts there."""
    with HubServer() as server:
        yield server


@pytest.fixture(scope="package")
def shared_operator(
    control_plane: Stack,
    installed: Admin,
    hub: HubServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorProcess]:
    """The operator that all journeys share, so that none of them pays for its start. It ends when
    tests of another folder begin, as these bring operators of their own."""
    folder = tmp_path_factory.mktemp("operator")
    environment = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "hub")}
    process = RestartedOperator(control_plane, folder, environment=environment)
    process.start()
    yield process
    process.close()


@pytest.fixture
def operator(shared_operator: OperatorProcess) -> Iterator[OperatorProcess]:
    """The running operator; a journey that ended it leaves it running again."""
    if not shared_operator.running:
        shared_operator.start()
    yield shared_operator
    if not shared_operator.running:
        shared_operator.start()


@pytest.fixture(scope="module")
def running_controller(
    control_plane: Stack, installed: Admin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LeaderWorkerSetController]:
    """The controller with its webhooks; its kind is gone afterwards."""
    folder = tmp_path_factory.mktemp("lws")
    with LeaderWorkerSetController(installed, folder, control_plane.layout.pki) as controller:
        yield controller


@pytest.fixture
def leader_worker_sets(
    running_controller: LeaderWorkerSetController,
) -> Iterator[LeaderWorkerSetController]:
    """The controller, which runs before and after each journey."""
    running_controller.require_running()
    yield running_controller
    running_controller.require_running()


@pytest.fixture
def fleet(control_plane: Stack, installed: Admin) -> UseFleet:
    """Make the cluster's nodes those of a fleet, shipped or described, and no others."""

    def use(fleet: str | Json) -> None:
        description = load_fleet(fleet) if isinstance(fleet, str) else fleet
        apply_fleet(control_plane.access, description, prune=True)

    return use


@pytest.fixture
def user(operator: OperatorProcess, installed: Admin, namespace: str) -> Iterator[User]:
    """A user in a namespace of their own; afterwards nothing of theirs may have been touched."""
    someone = User(installed, namespace)
    yield someone
    try:
        someone.assert_untouched()
    finally:
        clear(installed)


@pytest.fixture
def plugin(control_plane: Stack, user: User, tmp_path: Path) -> Plugin:
    """kubectl tonnage in the user's namespace, as the context of their kubeconfig says."""
    config = yaml.safe_load(control_plane.kubeconfig.read_text("utf-8"))
    config["contexts"][0]["context"]["namespace"] = user.namespace
    kubeconfig = tmp_path / "kubeconfig"
    write_private(kubeconfig, yaml.safe_dump(config))
    return Plugin(control_plane.kubectl, kubeconfig)


@pytest.fixture
def declare(operator: OperatorProcess, installed: Admin) -> Iterator[Declare]:
    """Declare AcceleratorPools as a platform team; they are withdrawn after the journey. What is
    applied afterwards is placed with them: the operator has reported each as it is now."""
    names = []

    def apply(pool: Json) -> Json:
        name = pool["metadata"]["name"]
        names.append(name)
        (stored,) = installed.apply(pool)
        generation = stored["metadata"]["generation"]
        await_pool(
            installed,
            name,
            lambda status: status.get("observedGeneration") == generation,
            why=f"the operator to know AcceleratorPool {name}",
        )
        return stored

    yield apply
    for name in names:
        installed.delete("apool", name, timeout=None)


def clear(admin: Admin) -> None:
    """Take away what the journey left, and wait until its pods hold no GPU any more.

    A namespace that is deleted keeps its objects for a while, and the next operator meets them.
    """
    path = admin.resource("infd").path("")  # a journey may have applied another CRD just now
    admin.until("the API server to serve InferenceDeployments", lambda: admin.rest.serves(path))
    for kind, selector in (("infd", ""), ("deployments", "app.kubernetes.io/managed-by=tonnage")):
        # A cluster whose CRDs are new collects no garbage of theirs for half a minute.
        for item in admin.items(kind, everywhere=True, selector=selector):
            metadata = item["metadata"]
            admin.delete(kind, metadata["name"], metadata["namespace"], timeout=None)
    # One whose node is gone is collected after a minute.
    admin.until(
        "the pods of this journey to be gone",
        lambda: not admin.items("pods", everywhere=True),
        timeout=2 * WAIT_SECONDS,
    )


@pytest.fixture
def operator_folder(tmp_path: Path) -> Path:
    """A folder for an operator of the journey's own."""
    return tmp_path / "operator"
