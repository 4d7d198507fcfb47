"""A later release of the operator: other defaults of pods, another vLLM. No pod is replaced before
the user asks for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.doubles.watch_recorder import WatchRecorder
from e2e.harness.operator_process import ROOT, OperatorProcess, RestartedOperator
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.plugin import Plugin
from e2e.journeys.user import User, container, has
from e2e.models import inference

MODELS = ("chat", "search", "code")
LATER = "0.33.0"


@pytest.fixture
def later_operator(
    control_plane: Stack, operator: OperatorProcess, tmp_path: Path
) -> Iterator[OperatorProcess]:
    """The operator of a later release, which does not run yet."""
    sources = tmp_path / "operator"
    shutil.copytree(ROOT / "operator" / "tonnage", sources / "tonnage")
    data = sources / "tonnage" / "catalog" / "data"
    replace_line(data / "engines.yaml", "default: 0.32.0", f"default: {LATER}")
    replace_line(data / "pod_defaults.yaml", "  base_cpu: 2", "  base_cpu: 3")
    later = RestartedOperator(
        control_plane, tmp_path / "later", environment={"PYTHONPATH": str(sources)}
    )
    yield later
    later.close()


def replace_line(path: Path, old: str, new: str) -> None:
    lines = path.read_text("utf-8").splitlines()
    lines[lines.index(old)] = new
    path.write_text("\n".join(lines), "utf-8")


def test_an_upgrade_replaces_pods_when_the_user_asks_for_it(
    fleet: UseFleet,
    user: User,
    operator: OperatorProcess,
    later_operator: OperatorProcess,
    plugin: Plugin,
) -> None:
    fleet("mixed")
    for name in MODELS:
        user.apply(inference(name, "llama-3.1-8b", replicas=2))
    for name in MODELS:
        user.wait_ready(name, timeout=180)
    pods = {name: user.pods(name) for name in MODELS}
    operator.kill()
    with WatchRecorder(user.admin, "infd", None, user.namespace) as recorder:
        later_operator.start()
        offered = {name: user.wait(name, offers_an_update, timeout=180) for name in MODELS}
        user.await_quiet()
        user.apply(inference("search", "llama-3.1-8b", replicas=3))
        user.wait("search", has_replicas(3))
        user.await_quiet()
    assert {name: user.pods(name) & pods[name] for name in MODELS} == pods
    lost = [body["metadata"]["name"] for body in recorder.versions if not is_ready(body)]
    assert set(lost) <= {"search"}
    update = offered["chat"]["availableUpdate"]
    assert update["release"] == LATER
    assert update["image"].endswith(f":v{LATER}")

    assert f"vLLM from 0.32.0 to {LATER}" in plugin.run("upgrade", "chat")
    user.forget("chat")  # the command has changed its spec
    user.wait("chat", lambda status: not offers_an_update(status), timeout=180)
    user.wait_ready("chat", timeout=180)
    assert not user.pods("chat") & pods["chat"]
    (deployment,) = user.children("deployments", "chat")
    assert container(deployment)["image"] == update["image"]
    assert user.pods("code") == pods["code"]


def offers_an_update(status: dict[str, Any]) -> bool:
    return "availableUpdate" in status


def has_replicas(number: int) -> Any:
    return lambda status: status.get("readyReplicas") == number and has("Ready")(status)


def is_ready(body: dict[str, Any]) -> bool:
    return bool(has("Ready")(body.get("status") or {}))
