"""The programs that bring checkpoints to the disk of a node and keep them there, as processes with
a real Hub."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.foreign.hub_server import HubFile, HubServer
from tests.support.foreign.tiny_model import CONFIG, SHARDS
from tonnage.checkpoint.hub.prefetch import TERMINATED
from tonnage.workloads.pod.weights import program

TIMEOUT_SECONDS = 300
"""Nothing takes so long but on a machine with far more to do than it has cores."""
FILES = {"config.json": CONFIG, **SHARDS}
SIZE = sum(file.size for file in FILES.values())
DAY = 86400


class Node:
    """The directory of a namespace on a node, and the containers that keep checkpoints there."""

    def __init__(self, root: Path, hub: HubServer, capacity: int) -> None:
        self.root = root / "weights"
        self.root.mkdir()
        self.hub = hub
        self.capacity = capacity
        self.containers: list[subprocess.Popen[str]] = []

    def folder(self, repo: str, commit: str) -> Path:
        return self.root / repo.replace("/", "--") / commit

    def prefetch(self, repo: str, commit: str, size: int = SIZE) -> subprocess.Popen[str]:
        """Run the container of a Job to its end."""
        process = self.start(repo, commit, size, ("prefetch", "node_disk", "download"))
        process.wait(TIMEOUT_SECONDS)
        return process

    def start(
        self,
        repo: str,
        commit: str,
        size: int = SIZE,
        programs: tuple[str, ...] = ("node_disk", "download"),
    ) -> subprocess.Popen[str]:
        """Start a container for a checkpoint."""
        number = len(self.containers)
        scratch = self.root.parent / str(number)
        scratch.mkdir()
        environment = {
            "PATH": os.environ["PATH"],
            "HF_ENDPOINT": self.hub.endpoint,
            "HF_HOME": str(scratch),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "REPO": repo,
            "COMMIT": commit,
            "FOLDER": str(self.folder(repo, commit)),
            "ROOT": str(self.root),
            "SIZE": str(size),
            "CAPACITY": str(self.capacity),
            "TTL": str(DAY),
            "READY": str(scratch / "ready"),
            "PAUSE": "0",
            "TERMINATION_LOG": str(scratch / "termination-log"),
        }
        texts = [program(name) for name in programs]
        command = [sys.executable, "-c", *texts]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.containers.append(process)
        return process

    def run(self, repo: str, commit: str, size: int = SIZE) -> subprocess.Popen[str]:
        """Start a container, and return once its checkpoint is there."""
        process = self.start(repo, commit, size)
        self.await_ready(process)
        return process

    def await_ready(self, process: subprocess.Popen[str]) -> None:
        ready = self.root.parent / str(self.containers.index(process)) / "ready"
        while not ready.exists():
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(0.05)
                raise AssertionError(f"ended with {code}: {self.message(process)}")

    def message(self, process: subprocess.Popen[str]) -> str:
        """Why a container has ended."""
        process.communicate(timeout=TIMEOUT_SECONDS)
        log = self.root.parent / str(self.containers.index(process)) / "termination-log"
        return log.read_text("utf-8") if log.exists() else ""

    def stop(self, process: subprocess.Popen[str]) -> int:
        """End a container as the kubelet does."""
        process.terminate()
        process.communicate(timeout=TIMEOUT_SECONDS)
        return process.returncode

    def used_days_ago(self, repo: str, commit: str, days: float) -> None:
        """The checkpoint was last used so long ago."""
        use = self.folder(repo, commit).parent / f".{commit}.use"
        then = use.stat().st_mtime - days * DAY
        os.utime(use, (then, then))


@pytest.fixture
def node(tmp_path: Path, hub: HubServer) -> Iterator[Node]:
    """A node with capacity for two checkpoints."""
    node = Node(tmp_path, hub, 2 * SIZE + SIZE // 2)
    yield node
    for process in node.containers:
        process.kill()
        process.communicate(timeout=TIMEOUT_SECONDS)


def add(hub: HubServer, repo: str) -> tuple[str, str]:
    return repo, hub.add_repo(repo, {**FILES, "LICENSE": HubFile.of(repo)})


def test_replicas_of_a_model_on_a_node_fetch_it_once(node: Node, hub: HubServer) -> None:
    model = add(hub, "acme/first")
    both = [node.start(*model), node.start(*model)]
    for process in both:
        node.await_ready(process)
    downloads = [request for request in hub.requests if "resolve" in request]
    weights = [request for request in downloads if request.endswith(".safetensors")]
    assert len([each for each in weights if each.startswith("GET")]) == len(SHARDS)
    hub.requests.clear()
    node.run(*model)
    assert hub.requests == []


def test_every_user_can_read_the_files_and_only_their_owner_can_write(
    node: Node, hub: HubServer
) -> None:
    model = add(hub, "acme/first")
    node.run(*model)
    folder = node.folder(*model)
    modes = {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o644}
    assert folder.stat().st_mode & 0o777 == 0o755


def test_what_was_not_used_for_longest_gives_way(node: Node, hub: HubServer) -> None:
    first, second, third = (add(hub, f"acme/{name}") for name in ("first", "second", "third"))
    for model, days in ((first, 1), (second, 2)):
        node.stop(node.run(*model))
        node.used_days_ago(*model, days=days / 10)
    node.run(*third)
    assert node.folder(*first).exists()
    assert not node.folder(*second).exists()
    assert node.folder(*third).exists()


def test_what_a_replica_uses_is_never_deleted(node: Node, hub: HubServer) -> None:
    first, second, third = (add(hub, f"acme/{name}") for name in ("first", "second", "third"))
    users = [node.run(*model) for model in (first, second)]
    for model in (first, second):
        node.used_days_ago(*model, days=100)
    process = node.start(*third)
    assert "lacks" in node.message(process)
    assert process.returncode == 3
    assert not any(third[1] in request for request in hub.requests), "nothing is downloaded"
    assert node.folder(*first).exists()
    assert node.folder(*second).exists()
    users[0].kill()
    users[0].communicate(timeout=TIMEOUT_SECONDS)
    node.run(*third)
    assert not node.folder(*first).exists(), "a killed container uses nothing"
    assert node.folder(*second).exists()


def test_nothing_is_deleted_for_a_model_that_does_not_fit_even_so(
    node: Node, hub: HubServer
) -> None:
    first, second, third = (add(hub, f"acme/{name}") for name in ("first", "second", "third"))
    node.run(*first)
    node.stop(node.run(*second))
    process = node.start(*third, size=2 * SIZE)
    assert "pods of the namespace use" in node.message(process)
    assert node.folder(*second).exists()


def test_a_model_larger_than_the_capacity_is_refused_with_figures(
    node: Node, hub: HubServer
) -> None:
    process = node.start(*add(hub, "acme/first"), size=2**40)
    assert "the model takes 1024.0 GiB, and the node has 0.0 GiB" in node.message(process)
    assert process.returncode == 3


def test_what_is_not_used_for_the_ttl_is_deleted(node: Node, hub: HubServer) -> None:
    old, newer, used = (add(hub, f"acme/{name}") for name in ("old", "newer", "used"))
    node.capacity = 10 * SIZE
    for model in (old, newer):
        node.stop(node.run(*model))
    node.used_days_ago(*old, days=2)
    node.stop(node.run(*used))
    assert not node.folder(*old).exists()
    assert node.folder(*newer).exists()


def test_a_checkpoint_that_is_deleted_in_part_is_downloaded_again(
    node: Node, hub: HubServer
) -> None:
    model = add(hub, "acme/first")
    node.stop(node.run(*model))
    folder = node.folder(*model)
    folder.rename(folder.parent / f".{folder.name}.partial")
    (folder.parent / f".{folder.name}.partial" / next(iter(SHARDS))).unlink()
    node.run(*model)
    assert {path.name for path in folder.iterdir()} == {*FILES, "LICENSE"}


def test_a_refusal_of_the_hub_ends_the_container_with_its_words(node: Node, hub: HubServer) -> None:
    repo = "acme/gated"
    commit = hub.add_repo(repo, FILES, gated=True, readers=("another",))
    process = node.start(repo, commit)
    assert "401" in node.message(process) or "403" in node.message(process)
    assert process.returncode == 3


def test_it_ends_when_the_pod_ends(node: Node, hub: HubServer) -> None:
    assert node.stop(node.run(*add(hub, "acme/first"))) == 0


def test_other_files_are_left_alone(node: Node, hub: HubServer, tmp_path: Path) -> None:
    old, used = add(hub, "acme/old"), add(hub, "acme/used")
    node.stop(node.run(*old))
    node.used_days_ago(*old, days=100)
    kept = node.root / "notes" / "README"
    kept.parent.mkdir()
    kept.write_text("ours")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("ours")
    (node.root / "notes" / ("a" * 40)).symlink_to(outside)
    node.run(*used)
    assert not node.folder(*old).exists()
    assert kept.read_text() == "ours"
    assert (outside / "file").read_text() == "ours"


def test_a_prefetch_brings_the_files_and_ends(node: Node, hub: HubServer) -> None:
    model = add(hub, "acme/first")
    process = node.prefetch(*model)
    assert process.returncode == 0, node.message(process)
    assert {path.name for path in node.folder(*model).iterdir()} == {*FILES, "LICENSE"}
    hub.requests.clear()
    node.run(*model)
    assert hub.requests == [], "the pod that comes later downloads nothing"


def test_a_prefetch_of_what_is_there_only_marks_it_as_used(node: Node, hub: HubServer) -> None:
    model = add(hub, "acme/first")
    node.prefetch(*model)
    node.used_days_ago(*model, days=0.9)
    hub.requests.clear()
    assert node.prefetch(*model).returncode == 0
    assert hub.requests == []
    node.used_days_ago(*model, days=0.9)
    node.prefetch(*add(hub, "acme/second"))
    assert node.folder(*model).exists(), "it was used less than a day ago"


def test_a_prefetch_deletes_no_model_that_may_be_needed(node: Node, hub: HubServer) -> None:
    first, second, third = (add(hub, f"acme/{name}") for name in ("first", "second", "third"))
    node.prefetch(*first)
    node.prefetch(*second)
    hub.requests.clear()
    process = node.prefetch(*third)
    assert "lacks 0.0 GiB for the model; a prefetch deletes no other model" in node.message(process)
    assert process.returncode == 3
    assert hub.requests == [], "nothing is downloaded"
    assert node.folder(*first).exists()
    assert node.folder(*second).exists()
    node.run(*third)
    assert not node.folder(*first).exists(), "a pod makes space for itself"


def test_a_prefetch_deletes_what_has_expired(node: Node, hub: HubServer) -> None:
    first, second, third = (add(hub, f"acme/{name}") for name in ("first", "second", "third"))
    node.prefetch(*first)
    node.prefetch(*second)
    node.used_days_ago(*first, days=2)
    assert node.prefetch(*third).returncode == 0
    assert not node.folder(*first).exists()
    assert node.folder(*second).exists()


def test_a_prefetch_larger_than_the_capacity_is_refused_with_figures(
    node: Node, hub: HubServer
) -> None:
    process = node.prefetch(*add(hub, "acme/first"), size=2**40)
    assert "the model takes 1024.0 GiB, and the node has 0.0 GiB" in node.message(process)
    assert process.returncode == 3


def test_a_prefetch_that_is_ended_has_not_succeeded(node: Node, hub: HubServer) -> None:
    """Its Job would count the files as there."""
    model = add(hub, "acme/first")
    hub.stall()
    process = node.start(*model, programs=("prefetch", "node_disk", "download"))
    while not hub.requests:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(0.05)
            raise AssertionError(f"ended with {code}: {node.message(process)}")
    assert node.stop(process) == TERMINATED
    assert not node.folder(*model).exists()
