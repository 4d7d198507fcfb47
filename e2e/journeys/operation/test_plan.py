"""`tonnage plan` on a dump of a cluster gives what the operator writes there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.harness.operator_process import ROOT, OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import await_pool, counts, declared
from e2e.journeys.user import User, has
from e2e.models import inference
from tests.support.foreign.hub_server import HubServer

H200 = {"nvidia.com/gpu.product": "NVIDIA-H200"}
WHOLE_DUMP = "nodes,pods,apool,infd,deploy,svc,priorityclass"


def manifests() -> list[Json]:
    """Two that find the cheapest pool, one that fits nowhere, one bound to a declared pool."""
    return [
        inference("llama-70b", "llama-3.3-70b", replicas=2),
        inference("llama-8b", "llama-3.1-8b", max_model_len=8192),
        inference("deepseek", "deepseek-v3", placement={"accelerators": ["l40s"]}),
        inference(
            "reserved",
            "llama-3.3-70b",
            placement={"poolSelector": {"matchLabels": {"team": "chat"}}},
        ),
    ]


def team_pool() -> Json:
    pool = declared("team", H200, costPerGPUHour="0.90")
    pool["metadata"]["labels"] = {"team": "chat"}
    return pool


class Desk:
    """Somebody at a shell: dumps made with kubectl, and the command line run on them."""

    def __init__(self, user: User, folder: Path, hub: HubServer, kubeconfig: Path) -> None:
        self.user = user
        self.folder = folder
        self.hub = hub
        self.kubeconfig = kubeconfig

    def dump(self, kinds: str, name: str = "") -> str:
        """A file with what `kubectl get KINDS -A -o yaml` prints."""
        path = self.folder / f"{name or kinds}.yaml"
        path.write_text(self.user.admin.kubectl("get", kinds, "-A", "-o", "yaml"))
        return str(path)

    def write(self, name: str, bodies: Iterable[Json]) -> str:
        path = self.folder / name
        path.write_text(yaml.safe_dump_all(list(bodies)))
        return str(path)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
        environment |= {"KUBECONFIG": str(self.kubeconfig), "HF_ENDPOINT": self.hub.endpoint}
        return subprocess.run(
            [sys.executable, "-P", "-m", "tonnage", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def plan(self, *arguments: str) -> dict[str, Json]:
        """The items of a plan by name. One of the objects fits nowhere, hence the exit code."""
        done = self.run("plan", *arguments, "-n", self.user.namespace, "-o", "json")
        assert done.returncode == 3, done.stderr
        return {item["name"]: item for item in json.loads(done.stdout)["items"]}


@pytest.fixture
def desk(user: User, tmp_path: Path, hub: HubServer, control_plane: Stack) -> Desk:
    return Desk(user, tmp_path, hub, control_plane.kubeconfig)


def apply_all(user: User) -> list[str]:
    """Apply the objects one a second, so that their ages tell their order."""
    for body in manifests():
        user.apply(body)
        time.sleep(1.1)  # creation times have whole seconds
    return [body["metadata"]["name"] for body in manifests()]


def await_all(user: User) -> None:
    for name in ("llama-70b", "llama-8b", "reserved"):
        user.wait_ready(name, timeout=180)
    user.wait("deepseek", has("Placed", "False", "DoesNotFit"), timeout=90)


def decided(status: Json) -> Json:
    """What was decided, without the progress that pods have made since."""
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    return {
        "model": status.get("model"),
        "desiredReplicas": status["desiredReplicas"],
        "candidates": status["candidates"],
        "placements": [
            {key: value for key, value in placement.items() if key != "readyReplicas"}
            for placement in status.get("placements", [])
        ],
        **{
            kind: [conditions[kind][key] for key in ("status", "reason", "message")]
            for kind in ("Accepted", "Placed")
        },
    }


def await_status(user: User, item: Json, read: Callable[[Json], Json], source: str) -> None:
    """Wait until the object has the status of its plan: the operator may have to reconcile it once
    more. `read` leaves out what is not compared."""
    name, wanted = item["name"], read(item["status"])
    user.admin.until(
        f"the status of {name} to be as planned from {source}",
        lambda: read(user.status(name)) == wanted,
        timeout=60,
        describe=lambda: "\n".join(lacks(read(user.status(name)), wanted)),
    )


def lacks(live: Any, wanted: Any, path: str = "") -> list[str]:
    """Where a stored object is not what a manifest says; what others added to it does not count."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        return [
            problem
            for key, value in wanted.items()
            for problem in (
                lacks(live[key], value, f"{path}.{key}") if key in live else [f"{path}.{key}"]
            )
        ]
    if isinstance(wanted, list) and isinstance(live, list) and len(live) == len(wanted):
        pairs = zip(live, wanted, strict=True)
        return [problem for pair in pairs for problem in lacks(*pair, f"{path}[]")]
    return [] if live == wanted else [f"{path}: {live!r} is not {wanted!r}"]


def assert_children(user: User, item: Json) -> None:
    """The children in the cluster are the manifests of the plan, all of them and no others."""
    stored = [
        *user.children("services", item["name"]),
        *user.children("deployments", item["name"]),
        *user.children("poddisruptionbudgets", item["name"]),
    ]
    assert len(stored) == len(item["manifests"])
    for live, manifest in zip(stored, item["manifests"], strict=True):
        named = {key: manifest[key] for key in ("apiVersion", "kind")}  # a list says it once
        assert lacks(named | live, manifest, manifest["kind"]) == []


def test_the_plan_of_new_objects_equals_what_the_operator_writes(
    fleet: UseFleet, declare: Declare, user: User, operator: OperatorProcess, desk: Desk
) -> None:
    fleet("mixed")
    declare(team_pool())
    operator.stop()
    names = apply_all(user)
    cluster = ["--nodes", desk.dump("nodes"), "--pods", desk.dump("pods")]
    cluster += ["--pools", desk.dump("apool")]
    from_git = desk.plan("-f", desk.write("git.yaml", manifests()), *cluster)
    from_dump = desk.plan("-f", desk.dump("infd"), *cluster)
    assert list(from_git) == list(from_dump) == names
    operator.start()
    await_all(user)
    for name in names:
        await_status(user, from_dump[name], decided, "the dump")
        await_status(user, from_git[name], decided, "git")
        # The digest of everything rendered, the reference to the owner included, is compared too.
        assert_children(user, from_dump[name])
        assert_children(user, from_git[name])
    pools = {name: [p["pool"] for p in user.status(name)["placements"]] for name in names[:2]}
    assert pools == {"llama-70b": ["team"], "llama-8b": ["team"]}, "the declared price decided"


def test_the_plan_of_running_objects_equals_their_status(
    fleet: UseFleet, declare: Declare, user: User, operator: OperatorProcess, desk: Desk
) -> None:
    fleet("mixed")
    declare(team_pool())
    await_pool(user.admin, "team", lambda pool: counts(pool)[0] == 16, why="the pool of the team")
    names = apply_all(user)
    await_all(user)
    # Each status was written when its object was looked at last; now all are looked at once more.
    operator.stop()
    operator.start()
    user.admin.until("the operator to lead", lambda: operator.leads, timeout=90)
    user.await_quiet()
    kinds = {"--nodes": "nodes", "--pods": "pods", "--pools": "apool"}
    parts = [word for flag, kind in kinds.items() for word in (flag, desk.dump(kind))]
    objects = ["-f", desk.dump("infd")]
    plans = {
        "three dumps": desk.plan(*objects, *parts),
        "one dump": desk.plan(*objects, "--nodes", desk.dump(WHOLE_DUMP, "whole")),
        "the cluster": desk.plan(*objects),
        "git and one dump": desk.plan(
            *("-f", desk.write("git.yaml", manifests())), "--nodes", str(desk.folder / "whole.yaml")
        ),
    }
    for source, plan in plans.items():
        for name in names:
            await_status(user, plan[name], dict, source)
            assert_children(user, plan[name])
    nothing = desk.run("plan", "-n", user.namespace, "--diff", *objects)
    assert (nothing.returncode, nothing.stdout) == (3, ""), "deepseek still fits nowhere"


def test_a_diff_shows_exactly_the_changed_fields(fleet: UseFleet, user: User, desk: Desk) -> None:
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b", replicas=2))
    user.wait_ready("llama")
    inside = ["-n", user.namespace]
    changed = desk.write("changed.yaml", [inference("llama", "llama-3.1-8b", replicas=3)])
    shown = desk.run("plan", "-f", changed, "--diff", *inside)
    assert shown.returncode == 1
    lines = [line for line in shown.stdout.splitlines() if line[0] in "+-"]
    assert "-  replicas: 2" in lines
    assert "+  replicas: 3" in lines
    first = lines.index(f"--- live/Deployment/{user.namespace}/llama-mi300x")
    second = lines.index(f"--- live/PodDisruptionBudget/{user.namespace}/llama")
    digests = ("tonnage.dev/rendered", "tonnage.dev/rendered")
    for part, field in ((lines[first:second], "replicas"), (lines[second:], "minAvailable")):
        assert [line.split(":")[0].strip("+- ") for line in part[2:]] == [*digests, field, field]
    user.apply(inference("llama", "llama-3.1-8b", replicas=3))
    user.wait("llama", lambda status: has("Ready")(status) and status["replicas"] == 3, timeout=90)
    same = desk.run("plan", "-f", changed, "--diff", *inside)
    assert (same.returncode, same.stdout, same.stderr) == (0, "", "")


def test_it_runs_as_a_kubectl_plugin(
    fleet: UseFleet,
    user: User,
    desk: Desk,
    control_plane: Stack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    plugin = Path(sys.executable).parent / "kubectl-tonnage"
    monkeypatch.setenv("PATH", f"{plugin.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))

    def kubectl(*arguments: str) -> str:
        words = [str(control_plane.kubectl), "tonnage", *arguments]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert kubectl("explain", "--help").startswith("usage: kubectl tonnage explain")
    assert "mi300x-0" in kubectl("pools")
    (pod,) = user.children("pods", "llama")
    output = kubectl("explain", f"pod/{pod['metadata']['name']}", "-n", user.namespace)
    for section in ("Model", "Fleet", "Pools judged", "Runs", "Measured by vLLM", "Next"):
        assert f"\n{section}\n" in output
    assert "Ready=True" in output
    assert "nothing is left to do" in output
