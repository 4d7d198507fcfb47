"""An operator for some namespaces reconciles them and requests nothing in others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.delivery.permissions.life import (
    TOKENS,
    TWO_NODES,
    download_weights,
    learn_twice,
    live_a_life,
    serve_on_several_nodes,
)
from e2e.delivery.permissions.team import (
    MountedFile,
    Team,
    grant_on_cluster,
    grant_roles,
    withdraw_from_cluster,
)
from e2e.doubles.fixed_measurements import FixedMeasurements
from e2e.harness.admin import SLOW, Admin
from e2e.harness.leader_worker_set import LeaderWorkerSetController
from e2e.harness.operator_process import ROOT, Account, OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet, clear
from e2e.journeys.user import User, has, runs_on
from e2e.models import inference
from e2e.rights import USED_LATE, denied, granted, roles_of, used
from e2e.volumes import bind_volume
from tests.support.foreign.hub_server import HubServer

NO_HUB = {"HF_ENDPOINT": "http://127.0.0.1:9"}
FILE = "TONNAGE_FLEET_FILE"
VOLUME = "namespaced"
CLUSTER_SCOPED = {"nodes", "acceleratorpools", "priorityclasses", "namespaces"}
MI300X, H100 = "amd-mi300x", "nvidia-h100-sxm-80gb"

Start = Callable[..., Team]


@pytest.fixture
def fleet_file(tmp_path: Path, fleet: UseFleet, installed: Admin) -> MountedFile:
    """The nodes of a tiny fleet, in a file."""
    fleet("tiny")
    file = MountedFile(tmp_path / "mounted")
    file.put_nodes(installed.items("nodes"))
    return file


@pytest.fixture
def start(control_plane: Stack, installed: Admin, tmp_path: Path) -> Iterator[Start]:
    """Start a team's operator in two namespaces of its own."""
    with ExitStack() as ended:
        home, chat, search, stranger = (
            ended.enter_context(installed.fresh_namespace(prefix))
            for prefix in ("tonnage", "chat", "search", "stranger")
        )
        account = Account(home, "tonnage")
        ended.callback(withdraw_from_cluster, installed, account)
        ended.callback(clear, installed)

        def start_team(environment: dict[str, str], rules: list[Json] | None = None) -> Team:
            mark = installed.audit_mark()
            roles = grant_roles(installed, account, [chat, search])
            if rules:
                grant_on_cluster(installed, account, rules)
                await_right(installed, account, "list", "nodes", "")
            for namespace in (chat, search):
                await_right(installed, account, "patch", "deployments.apps", namespace)
            environment = NO_HUB | environment | {"TONNAGE_NAMESPACES": f"{chat},{search}"}
            operator = OperatorProcess(
                control_plane, tmp_path / "operator", environment=environment, account=account
            )
            ended.callback(operator.close)
            operator.start()
            return Team(
                admin=installed,
                account=account,
                operator=operator,
                chat=User(installed, chat),
                search=User(installed, search),
                stranger=User(installed, stranger),
                roles=roles,
                mark=mark,
            )

        yield start_team


def await_right(admin: Admin, account: Account, verb: str, resource: str, namespace: str) -> None:
    """Wait until the authorizer knows of a role: nothing that the operator asks for is denied."""
    admin.until(
        f"{account.user} to {verb} {resource}",
        lambda: admin.allows(account.user, verb, resource, namespace),
        timeout=SLOW,
    )


def apply_elsewhere(user: User, manifest: Json) -> None:
    """Apply it in a namespace that no operator watches."""
    metadata = {**manifest["metadata"], "namespace": user.namespace}
    user.admin.apply({**manifest, "metadata": metadata})


def work_in(user: User) -> User:
    """The user, in whose namespace the admin works from here on."""
    user.admin.namespace = user.namespace
    return user


def test_with_roles_only_the_operator_works_in_its_namespaces_and_requests_no_other(
    start: Start, fleet: UseFleet, fleet_file: MountedFile, control_plane: Stack, tmp_path: Path
) -> None:
    with FixedMeasurements(TOKENS) as measured, HubServer() as hub:
        environment = {"HF_ENDPOINT": hub.endpoint, "TONNAGE_PROMETHEUS_URL": measured.url}
        team = start({FILE: str(fleet_file.path), **environment})
        apply_elsewhere(team.stranger, inference("llama", "llama-3.1-8b"))
        live_a_life(work_in(team.chat))
        learn_twice(team.chat, team.account.namespace)
        fleet(TWO_NODES)
        fleet_file.put_nodes(team.admin.items("nodes"))
        with LeaderWorkerSetController(team.admin, tmp_path / "lws", control_plane.layout.pki):
            serve_on_several_nodes(team.chat)
        without_volumes = team.events()
        bind_volume(team.admin, team.chat.namespace, VOLUME)
        download_weights(team.chat, hub)
    team.admin.delete("persistentvolumes", VOLUME, timeout=None)
    work_in(team.search).apply(inference("llama", "llama-3.1-8b"))
    team.search.wait_ready("llama", timeout=SLOW)
    assert "conditions" not in status_of(team.admin, team.stranger.namespace)
    assert team.admin.items("deployments", team.stranger.namespace) == []
    assert denied(without_volumes) == []  # Roles do not let it read claims and volumes
    unused = granted(team.roles) - used(team.events(), team.roles)
    assert unused <= USED_LATE <= granted(team.roles)  # a slow machine may come to what is late
    asked = [event["objectRef"] for event in without_volumes if "objectRef" in event]
    assert not {reference["resource"] for reference in asked} & CLUSTER_SCOPED
    namespaces = {team.account.namespace, team.chat.namespace, team.search.namespace}
    assert {reference.get("namespace") for reference in asked} == namespaces


def status_of(admin: Admin, namespace: str) -> Json:
    """The status of the object in a namespace."""
    model = admin.get("infd", "llama", namespace)
    assert model is not None
    return dict(model.get("status") or {})


def test_the_fleet_comes_from_the_file_and_an_invalid_file_changes_nothing(
    start: Start, fleet_file: MountedFile, installed: Admin
) -> None:
    nodes = installed.items("nodes")
    fleet_file.put_nodes([node for node in nodes if not node["metadata"]["name"].startswith("h1")])
    team = start({FILE: str(fleet_file.path)})
    user = work_in(team.chat)
    on_h100: Json = {"placement": {"accelerators": ["h100-sxm-80gb"]}}
    user.apply(inference("llama", "llama-3.1-8b", **on_h100))
    user.wait("llama", has("Placed", "False", "NoMatchingPool"), timeout=SLOW)
    fleet_file.put_nodes(nodes)
    user.wait("llama", runs_on(H100), timeout=SLOW)
    fleet_file.put("kind: Node\nmetadata: [\n")
    installed.until("the bad file to be reported", lambda: valid(team) == 0.0, timeout=SLOW)
    (entry,) = [line for line in team.operator.log_lines() if "fleet file is invalid" in str(line)]
    assert "line 3" in entry["message"]
    user.apply(inference("later", "llama-3.1-8b", **on_h100))
    user.wait("later", runs_on(H100), timeout=SLOW)
    fleet_file.put_nodes(nodes)
    installed.until("the file to be good again", lambda: valid(team) == 1.0, timeout=SLOW)


def valid(team: Team) -> float | None:
    lines = team.operator.metrics().splitlines()
    return next(
        (float(line.split()[1]) for line in lines if line.startswith("tonnage_fleet_file_valid ")),
        None,
    )


def test_readiness_reports_an_unusable_fleet_file_until_it_is_valid(
    start: Start, fleet_file: MountedFile, installed: Admin
) -> None:
    team = start({FILE: str(fleet_file.path)})
    assert team.operator.stop() == 0
    fleet_file.put("{}")
    team.operator.launch()
    code, message = installed.until(
        "readiness to say why",
        lambda: named(team.operator.readiness(), "fleet.yaml"),
        timeout=SLOW,
        describe=lambda: str(team.operator),
    )
    assert code == 503
    assert "holds no Node" in message
    fleet_file.put_nodes(installed.items("nodes"))
    installed.until(
        "it to be ready",
        lambda: team.operator.readiness()[0] == 200,
        timeout=SLOW,
        describe=lambda: str(team.operator),
    )
    assert team.operator.running


def named(readiness: tuple[int, str], word: str) -> tuple[int, str] | None:
    return readiness if word in readiness[1] else None


def test_namespaces_can_be_combined_with_nodes_and_pools_of_the_cluster(
    start: Start, fleet: UseFleet, installed: Admin
) -> None:
    fleet("tiny")
    (shipped,) = (
        role
        for role in roles_of(installed, ROOT / "manifests" / "base")
        if role["kind"] == "ClusterRole"
    )
    rules = [
        {**rule, "resources": sorted(set(rule["resources"]) & ON_CLUSTER)}
        for rule in shipped["rules"]
        if set(rule["resources"]) & ON_CLUSTER
    ]
    team = start({}, rules)
    user = work_in(team.chat)
    user.apply(inference("llama", "llama-3.1-8b", placement={"accelerators": ["mi300x"]}))
    user.wait("llama", runs_on(MI300X), timeout=SLOW)
    installed.wait_for("apool", MI300X, has_conditions, timeout=SLOW)
    assert denied(team.events()) == []


def has_conditions(pool: Json) -> bool:
    return bool(pool.get("status", {}).get("conditions"))


ON_CLUSTER = {
    *("nodes", "acceleratorpools", "acceleratorpools/status", "priorityclasses"),
    *("namespaces", "persistentvolumes", "persistentvolumeclaims"),
    *("resourceslices", "resourceclaims", "deviceclasses", "resourceclaimtemplates"),
}
