"""The image's own steps make a tree that runs read-only, as a stranger, with nothing around it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from e2e.harness.operator_process import ROOT
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User
from e2e.models import inference
from e2e.programs.image import INSTALLED, ContainedOperator, Container, build_image, stages

LIST_PACKAGES = (
    "from importlib.metadata import distributions\n"
    "print(*(found.metadata['Name'] for found in distributions()))"
)
LOOK_AROUND = """
import json, os
from pathlib import Path

def takes_a_file(folder):
    try:
        (folder / "planted").touch()
    except OSError:
        return False
    return True

mounts = [Path(line.split()[4]) for line in open("/proc/self/mountinfo")]
folders = [path for path in mounts if path.is_dir() and Path("/proc") not in (path, *path.parents)]
print(json.dumps({
    "user": os.getuid(),
    "group": os.getgid(),
    "status": Path("/proc/self/status").read_text(),
    "environment": dict(os.environ),
    "folders": [str(path) for path in folders],
    "writable": [str(path) for path in folders if takes_a_file(path)],
}))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the build stage makes, made once by the same script."""
    return build_image(tmp_path_factory.mktemp("image"))


@pytest.fixture
def container(tree: Path, tmp_path: Path) -> Container:
    """The image with a /tmp of this test alone, in which a kopf.py lies in wait."""
    made = Container.make(tree, tmp_path)
    (made.scratch / "kopf.py").write_text("raise SystemExit('the planted kopf was imported')\n")
    return made


@pytest.fixture
def operator(
    control_plane: Stack, installed: object, container: Container, tmp_path: Path
) -> Iterator[ContainedOperator]:
    """The operator of the image, ready."""
    process = ContainedOperator(control_plane, tmp_path / "operator", container)
    process.start()
    yield process
    process.close()


def test_it_becomes_ready_places_a_model_and_stops_gracefully_without_writing_a_file(
    operator: ContainedOperator, container: Container, fleet: UseFleet, user: User
) -> None:
    fleet("mixed")
    user.apply(inference("llama-70b"))
    status = user.wait_ready("llama-70b", timeout=240)
    assert status["placements"][0]["accelerator"] == "mi300x"
    assert operator.stop() == 0
    assert "Read-only file system" not in operator.log.read_text()
    written = {path.name for path in container.scratch.iterdir()} - {"kopf.py"}
    assert written <= {"huggingface"}


def test_it_runs_as_an_unknown_user_without_capabilities_and_writes_only_to_tmp(
    container: Container,
) -> None:
    facts = json.loads(container.run("python", "-P", "-c", LOOK_AROUND).stdout)
    user, _, group = stages()[1].texts("USER")[0].partition(":")
    assert (facts["user"], facts["group"]) == (int(user), int(group))
    assert re.search(r"^CapEff:\s0+$", facts["status"], re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s1$", facts["status"], re.MULTILINE)
    assert {"/", "/usr", INSTALLED, sys.base_prefix} <= set(facts["folders"])
    assert facts["writable"] == ["/tmp"]
    assert set(facts["environment"]) - {"LC_CTYPE"} == set(stages()[1].environment)


def test_it_has_exactly_the_locked_packages_and_no_installer(
    container: Container,
) -> None:
    packages = container.run("python", "-P", "-c", LIST_PACKAGES).stdout.split()
    lock = (ROOT / "requirements" / "run.lock").read_text()
    locked = map(Requirement, re.findall(r"^([a-z0-9][^\\\n]*)", lock, re.MULTILINE))
    wanted = {one.name for one in locked if one.marker is None or one.marker.evaluate()}
    assert {canonicalize_name(name) for name in packages} == wanted | {"tonnage"}
    assert "pip" not in {path.name for path in (container.tree / "bin").iterdir()}


def test_a_module_in_the_working_folder_is_not_imported(container: Container) -> None:
    python, *flags = stages()[1].words("ENTRYPOINT")
    assert flags == ["-P", "-m", "tonnage"]
    shipped = container.run(python, flags[0], "-c", "import kopf; print(kopf.__file__)")
    assert shipped.stdout.startswith(INSTALLED)
    without = container.run(python, "-c", "import kopf")
    assert "the planted kopf was imported" in without.stderr
