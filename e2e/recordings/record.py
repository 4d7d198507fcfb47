"""Record what an operator leaves in a cluster: `python -m e2e.recordings.record --operator DIR`.

Tests of upgrades let a later operator take over what was recorded. DIR is a checkout of the release
that is recorded, by default this one; the cluster and the objects are always this checkout's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import yaml
from rich.console import Console

from e2e.harness.admin import Admin
from e2e.harness.failure import HarnessError, run_cli
from e2e.harness.operator_process import CORRECTIONS, ROOT, OperatorProcess, install
from e2e.harness.operator_process import NAMESPACE as OPERATOR_NAMESPACE
from e2e.harness.rest import Json
from e2e.harness.stack import Stack, down, up
from e2e.integrations import inference_pool_crd
from e2e.journeys.user import User, condition, has, runs_on
from e2e.nodes.fleet import apply_fleet
from e2e.recordings.objects import (
    APPROVED,
    CHANGES,
    FELL_BACK,
    FLEET,
    LOST_NODE,
    NAMESPACE,
    OBJECTS,
    POOLS,
    PREREQUISITES,
    READY_REASONS,
    WAITING,
    approved,
)
from e2e.recordings.recording import FOLDER, Recording

_TIMEOUT_SECONDS = 120.0
"""Longest wait for one object to get into its state."""

CLUSTER_KINDS = ("nodes", "apool", "priorityclasses", "persistentvolumes")
NAMESPACE_KINDS = (
    "configmaps",
    "serviceaccounts",
    "persistentvolumeclaims",
    "infd",
    "deployments",
    "replicasets",
    "services",
    "pods",
    "inferencepools",
)
_MADE_BY_KUBERNETES = {"kube-root-ca.crt", "default"}
_SYSTEM_PRIORITY = "system-"


def prepare(admin: Admin) -> None:
    """Install what an operator needs, InferencePools and the right to write them among it."""
    install(admin)
    admin.apply(inference_pool_crd())
    component = ROOT / "manifests" / "components" / "inference-pool"
    with tempfile.TemporaryDirectory() as folder:
        resources = [os.path.relpath(ROOT / "manifests" / "base", folder)]
        kustomization = {"resources": resources, "components": [os.path.relpath(component, folder)]}
        Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(kustomization), "utf-8")
        documents = list(yaml.safe_load_all(admin.kubectl("kustomize", folder)))
    admin.apply(body for body in documents if body["kind"] == "ClusterRole")
    admin.resource("inferencepools")


def reach_recorded_states(stack: Stack, admin: Admin) -> None:
    """Apply all objects, and return when each is in the state that it is recorded in."""
    admin.apply(PREREQUISITES[0])
    admin.namespace = NAMESPACE
    admin.apply(PREREQUISITES[1:])
    user = User(admin, NAMESPACE)
    _fall_back(stack, user)
    for body in OBJECTS:
        user.apply(body)
    for name in APPROVED:
        awaits = has("Placed", "False", "AwaitingApproval")
        plan = user.wait(name, awaits, timeout=_TIMEOUT_SECONDS)["proposedPlan"]["hash"]
        user.apply(approved(name, plan))
    changed = {body["metadata"]["name"] for body in CHANGES} | {"awaits-next-approval"}
    for name in changed:
        user.wait_ready(name, timeout=_TIMEOUT_SECONDS)
    plan = user.get("awaits-next-approval")["spec"]["approvedPlan"]
    user.apply(approved("awaits-next-approval", plan, image="registry.example/vllm:2"))
    for body in CHANGES:
        user.apply(body)
    _await_states(user, [body["metadata"]["name"] for body in OBJECTS])
    user.apply(WAITING)
    _await_states(user, [body["metadata"]["name"] for body in (FELL_BACK, *OBJECTS, WAITING)])
    user.await_quiet()


def _fall_back(stack: Stack, user: User) -> None:
    """Place an object in a pool, take that pool away, and wait until it runs in another."""
    admin, name = user.admin, FELL_BACK["metadata"]["name"]
    spot = [group for group in FLEET["groups"] if group["name"] == "spot"]
    admin.apply(POOLS)
    apply_fleet(stack.access, {"groups": spot})
    user.apply(FELL_BACK)
    user.wait(name, runs_on("spot"), timeout=_TIMEOUT_SECONDS)
    apply_fleet(stack.access, FLEET)
    admin.delete("nodes", LOST_NODE)
    force = ("--force", "--grace-period=0", "--wait=false")
    admin.kubectl("delete", "pods", "--all", *force, f"--namespace={user.namespace}")
    left = partial(_runs_elsewhere, pool="spot")
    user.wait(name, left, timeout=_TIMEOUT_SECONDS, why=f"{name} to fall back to another pool")


def _runs_elsewhere(status: Json, pool: str) -> bool:
    pools = [placement["pool"] for placement in status.get("placements") or []]
    return bool(has("Ready")(status) and pools and pool not in pools)


def _await_states(user: User, names: list[str]) -> None:
    for name in names:
        reason = READY_REASONS.get(name, "ReplicasReady")
        user.wait(
            name,
            partial(_is_for_reason, reason=reason),
            timeout=_TIMEOUT_SECONDS,
            why=f"condition Ready of {name} to have reason {reason}",
        )


def _is_for_reason(status: Json, reason: str) -> bool:
    return bool(condition(status, "Ready").get("reason") == reason)


def read_objects(admin: Admin) -> list[Json]:
    """All objects that a later operator finds, as the API server has them."""
    objects: list[Json] = []
    for kind in (*CLUSTER_KINDS, *NAMESPACE_KINDS):
        resource = admin.resource(kind)
        identity = {"apiVersion": resource.group_version, "kind": resource.kind}
        objects += [{**identity, **body} for body in admin.items(kind)]
    corrections = admin.get("configmaps", CORRECTIONS, OPERATOR_NAMESPACE)
    return [body for body in (*objects, corrections) if body and not _is_kubernetes_own(body)]


def _is_kubernetes_own(body: Json) -> bool:
    name = str(body["metadata"]["name"])
    return name in _MADE_BY_KUBERNETES or name.startswith(_SYSTEM_PRIORITY)


def commit_of(checkout: Path) -> str:
    """The commit of a checkout, in short; an operator with changes on it is no release."""
    git = ["git", "-C", str(checkout)]
    changes = _output([*git, "status", "--porcelain", "--", "operator", "crds"])
    if changes:
        raise HarnessError(f"{checkout} has changes that no commit names:\n{changes}")
    return _output([*git, "rev-parse", "--short=7", "HEAD"])


def _output(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise HarnessError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout.strip()


def record(checkout: Path, folder: Path, environment: Mapping[str, str] | None = None) -> Recording:
    """Start a stack in `folder`, run the checkout's operator on it, and record what it leaves."""
    commit = commit_of(checkout)
    stack = up(folder / "stack", owner_pid=os.getpid())
    try:
        admin = Admin(stack.kubeconfig, stack.kubectl, audit_log=stack.audit_log)
        prepare(admin)
        for path in sorted((checkout / "crds").glob("tonnage.dev_*.yaml")):
            admin.apply(path)
        source = {"PYTHONPATH": str(checkout.absolute() / "operator")}
        operator = OperatorProcess(
            stack, folder / "operator", environment=source | dict(environment or {})
        )
        operator.start()
        try:
            reach_recorded_states(stack, admin)
            operator.stop()
            return Recording.of(commit, read_objects(admin))
        finally:
            operator.close()
    finally:
        down(stack.root)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.recordings.record",
        description="Record the objects that an operator leaves on a real control plane: Nodes, "
        "pools, one InferenceDeployment of each shape, and all that belongs to them. "
        "Needs the programs of the control plane, and takes about a minute.",
    )
    parser.add_argument(
        "--operator", type=Path, default=ROOT, help="checkout of the recorded operator (this one)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        help=f"file to write (default {FOLDER.relative_to(ROOT)}/COMMIT.json.gz)",
    )
    return parser.parse_args()


def main() -> int:
    """Make one recording."""
    arguments = _parse()
    console = Console(soft_wrap=True, highlight=False)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tonnage-record-") as folder:
        recording = record(arguments.operator, Path(folder))
    path = arguments.output or FOLDER / f"{recording.commit}.json.gz"
    recording.save(path)
    kilobytes = path.stat().st_size / 1000
    console.print(
        f"recorded {len(recording.objects)} objects of operator {recording.commit} in "
        f"{time.monotonic() - started:.0f} s: {path} ({kilobytes:.0f} kB)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(run_cli(main))
