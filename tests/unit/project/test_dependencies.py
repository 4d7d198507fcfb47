"""What the operator runs with: packages by their hashes, under licences that let us ship them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from e2e.programs.bill_of_materials import licence_of, shipped

LOCKS = sorted(Path("requirements").glob("*.lock"))
SHIPPED = Path("requirements/run.lock")

ALLOWED = frozenset(
    {"MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "PSF-2.0", "CNRI-Python"}
    | {"MPL-2.0"}  # of single files, which are shipped as they are
)
"""SPDX identifiers (https://spdx.org/licenses). A new one is a decision: ask before it is added."""


def locked(path: Path) -> Iterator[tuple[Requirement, list[str]]]:
    """Each requirement of a lock file, and its hashes."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith((" ", "#", "-")):
            requirement, *hashes = re.split(r"\s+--hash=", line)
            yield Requirement(requirement), [one_hash.strip() for one_hash in hashes]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_requirement_has_one_version_and_hashes(path: Path) -> None:
    requirements = list(locked(path))
    assert requirements
    for requirement, hashes in requirements:
        assert [one.operator for one in requirement.specifier] == ["=="], requirement
        assert requirement.url is None
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), requirement


def test_every_shipped_package_has_an_allowed_licence() -> None:
    names = [requirement.name for requirement in shipped(SHIPPED)]
    assert len(names) > 40
    licences = {name: set(re.split(r" AND | OR ", licence_of(name))) for name in names}
    assert {name: licence for name, licence in licences.items() if not licence <= ALLOWED} == {}
