"""Licences for the bill of materials: a lock has none, the packages' own metadata do.

`make sbom` sends it what cyclonedx-py makes of requirements/run.lock. A package that the lock has
for other platforms only is in no image, and is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.spdx import is_expression, is_supported_id
from packaging.requirements import Requirement

from e2e.harness.failure import HarnessError, run_cli
from e2e.harness.operator_process import ROOT
from e2e.harness.rest import Json

LOCK = ROOT / "requirements" / "run.lock"

_CLASSIFIERS = {"MIT License": "MIT"}
"""Of packages whose metadata have neither an expression nor a licence in a word."""

_IN_OTHER_WORDS = {"Apache 2.0": "Apache-2.0", "MIT License": "MIT"}


def shipped(lock: Path = LOCK) -> Iterator[Requirement]:
    """The packages of the lock that are installed here, as they are in the image."""
    for line in lock.read_text("utf-8").splitlines():
        if line and not line.startswith((" ", "#", "-")):
            requirement = Requirement(line.removesuffix("\\"))
            if requirement.marker is None or requirement.marker.evaluate():
                yield requirement


def licence_of(package: str) -> str:
    """As the installed package says it, in SPDX where it can be."""
    said = metadata(package)
    fields = [field for field in ("License-Expression", "License") if field in said]
    words = next((said[field] for field in fields if said[field]), "")
    if words:
        return _IN_OTHER_WORDS.get(words, words)
    kinds = [classifier.rpartition(" :: ")[2] for classifier in said.get_all("Classifier") or []]
    return next((_CLASSIFIERS[kind] for kind in kinds if kind in _CLASSIFIERS), "none")


def with_licences(bill: Json) -> Json:
    """The bill of what is shipped, each component with its licence. Raises HarnessError for one
    that names none of SPDX."""
    names = {requirement.name for requirement in shipped()}
    components = [one for one in bill["components"] if one["name"] in names]
    kept = {one["bom-ref"] for one in components} | {bill["metadata"]["component"]["bom-ref"]}
    return {
        **bill,
        "components": [{**one, "licenses": [_licence(one["name"])]} for one in components],
        "dependencies": [one for one in bill["dependencies"] if one["ref"] in kept],
    }


def _licence(package: str) -> Json:
    said = licence_of(package)
    if is_supported_id(said):
        return {"license": {"id": said}}
    if is_expression(said):
        return {"expression": said}
    raise HarnessError(
        f"{package} has the licence {said!r}, expected an identifier of https://spdx.org/licenses:"
        " say in e2e/programs/bill_of_materials.py which one is meant"
    )


def main() -> int:
    """Read a bill, write it with licences."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.programs.bill_of_materials", description=__doc__
    )
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    arguments = parser.parse_args()
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415 - takes a second

    text = json.dumps(with_licences(json.load(sys.stdin)), indent=2, sort_keys=True) + "\n"
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        raise HarnessError(f"the bill is not CycloneDX 1.6: {wrong}")
    arguments.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run_cli(main))
