"""The operator's image without a container engine: built by its own steps, run as a pod would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.harness.failure import HarnessError
from e2e.harness.operator_process import NAMESPACE, ROOT, OperatorProcess
from e2e.harness.rest import Access
from e2e.harness.stack import Stack
from e2e.programs.containerfile import Stage, read_containerfile

INSTALLED = "/opt/tonnage"
"""Where the image has what the build stage made."""

_CONTAINER = Path(__file__).with_name("container.sh")
_ISOLATED = ("unshare", "--user", "--map-root-user", "--mount", "--propagation", "private")
_BUILD_TIMEOUT = 1200.0
_RUN_TIMEOUT = 300.0


def stages() -> tuple[Stage, Stage]:
    """The stages of the shipped Containerfile: what builds, and what runs."""
    build, final = read_containerfile(ROOT / "Containerfile")
    return build, final


def shipped_container() -> dict[str, Any]:
    """The operator's container in the Deployment of manifests/base."""
    deployment = yaml.safe_load((ROOT / "manifests/base/deployment.yaml").read_text("utf-8"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


def build_image(folder: Path) -> Path:
    """Do what the build stage does, in a folder with only what it copies; return the tree."""
    build, _ = stages()
    source, tree = folder / "source", folder / "tree"
    for copy in build.copies:
        for name in copy.sources:
            target = source / copy.target
            _copy(ROOT / name, target / Path(name).name if copy.target.endswith("/") else target)
    for command in build.texts("RUN"):
        _run_in(source, command.replace(INSTALLED, str(tree)))
    return tree


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


def _run_in(folder: Path, command: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["sh", "-eu", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=_BUILD_TIMEOUT,
        check=False,
    )
    if result.returncode:
        raise HarnessError(f"{command} ended with {result.returncode}:\n{result.stderr[-4000:]}")


@dataclass(frozen=True, slots=True)
class Container:
    """A place to run the image in: its root is read-only, and `scratch` is its /tmp.

    `account` has what a pod finds of its ServiceAccount.
    """

    tree: Path
    scratch: Path
    account: Path
    empty: Path

    @staticmethod
    def make(tree: Path, folder: Path) -> Container:
        """A container with folders of its own below `folder`."""
        container = Container(tree, folder / "tmp", folder / "account", folder / "root")
        for path in (container.scratch, container.account, container.empty):
            path.mkdir(parents=True, exist_ok=True)
        return container

    def command(self, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """The command that runs `words` there, with these variables and no others."""
        given = [f"{name}={value}" for name, value in environment.items()]
        places = [self.empty, self.tree, self.scratch, self.account, sys.base_prefix, "/tmp"]  # noqa: S108 - the container's own, which is `scratch`
        return [
            *(*_ISOLATED, str(_CONTAINER), *map(str, places)),
            *("env", "-i", *given, *words),
        ]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run something else than the operator in the image, to its end."""
        command = self.command(words, stages()[1].environment)
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_RUN_TIMEOUT
        )


class ContainedOperator(OperatorProcess):
    """The operator as the image and the Deployment have it, in a cluster of the harness.

    Only the port that it listens on is another: several stacks run side by side.
    """

    def __init__(self, stack: Stack, folder: Path, container: Container) -> None:
        super().__init__(stack, folder)
        self._container = container

    def command(self) -> list[str]:
        """The Deployment's command in the container, with what a kubelet would add."""
        shipped = shipped_container()
        args = [word.replace("0.0.0.0:8080", self.address) for word in shipped["args"]]
        environment = stages()[1].environment | self._kubelets_environment(shipped)
        self._write_account()
        return self._container.command([*shipped["command"], *args], environment)

    def _kubelets_environment(self, shipped: Mapping[str, Any]) -> dict[str, str]:
        host, port = self._stack.server.removeprefix("https://").split(":")
        fields = {"metadata.namespace": NAMESPACE, "metadata.name": "tonnage-0"}
        environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        for variable in shipped.get("env", []):
            source = variable.get("valueFrom")
            value = fields[source["fieldRef"]["fieldPath"]] if source else variable["value"]
            environment[variable["name"]] = value
        return environment

    def _write_account(self) -> None:
        """The files that a pod finds of its ServiceAccount."""
        access = Access.load(self._kubeconfig)
        files = {"token": access.token, "ca.crt": access.authority, "namespace": NAMESPACE}
        for name, text in files.items():
            (self._container.account / name).write_text(text, encoding="utf-8")
