"""The bill of materials that `make sbom` writes is the lock file, in CycloneDX."""

import json
import re
import subprocess
from pathlib import Path

from e2e.operator_process import ROOT

LOCK = (ROOT / "requirements" / "run.lock").read_text(encoding="utf-8")


def test_it_has_the_locked_packages_with_their_hashes_and_no_other(tmp_path: Path) -> None:
    # The environment that runs the tests is the one that `install` would make.
    command = ["make", "-o", "install", "sbom", f"DIST={tmp_path}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    bill = json.loads((tmp_path / "tonnage-sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "tonnage")
    (licence,) = bill["metadata"]["component"]["licenses"]
    assert licence["license"]["id"] == "Apache-2.0"
    assert {
        f"{one['name']}=={one['version']}": {
            each["content"] for source in one["externalReferences"] for each in source["hashes"]
        }
        for one in bill["components"]
    } == {
        name: set(re.findall(r"--hash=sha256:(\w+)", block))
        for name, block in re.findall(r"^([a-z]\S+==\S+)((?:.|\n )*)", LOCK, re.MULTILINE)
    }
