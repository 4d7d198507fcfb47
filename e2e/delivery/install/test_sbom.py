"""The bill of materials of `make sbom` has the packages of the lock file, with licences."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from e2e.harness.failure import HarnessError
from e2e.harness.operator_process import ROOT
from e2e.programs import bill_of_materials

LOCK = (ROOT / "requirements" / "run.lock").read_text(encoding="utf-8")


def test_it_has_the_locked_packages_with_their_hashes_and_no_other(tmp_path: Path) -> None:
    # The environment that runs the tests is the one that `install` would make.
    command = ["make", "-o", "install", "sbom", f"DIST={tmp_path}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    bill = json.loads((tmp_path / "tonnage-sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "tonnage")
    (licence,) = bill["metadata"]["component"]["licenses"]
    assert licence["license"]["id"] == "Apache-2.0"
    locked = {
        name: set(re.findall(r"--hash=sha256:(\w+)", block))
        for name, block in re.findall(r"^([a-z]\S+==\S+)((?:.|\n )*)", LOCK, re.MULTILINE)
    }
    for_windows = {name for name in locked if name.startswith("colorama==")}
    assert {
        f"{one['name']}=={one['version']}": {
            each["content"] for source in one["externalReferences"] for each in source["hashes"]
        }
        for one in bill["components"]
    } == {name: hashes for name, hashes in locked.items() if name not in for_windows}
    licences = {one["name"]: one["licenses"] for one in bill["components"]}
    assert licences["kopf"] == [{"license": {"id": "MIT"}}]
    assert licences["regex"] == [{"expression": "Apache-2.0 AND CNRI-Python"}]
    assert all(licences.values())


def test_a_package_without_an_spdx_licence_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bill_of_materials, "licence_of", lambda _: "as is")
    bill = {
        "metadata": {"component": {"bom-ref": "tonnage"}},
        "components": [{"name": "kopf", "bom-ref": "kopf"}],
        "dependencies": [],
    }
    with pytest.raises(HarnessError, match="kopf has the licence 'as is'"):
        bill_of_materials.with_licences(bill)
