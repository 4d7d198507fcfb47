"""Adds what benchmarks.gpu.measure wrote to accuracy/records/h200.jsonl.

    python -m benchmarks.gpu.record --cases cases.jsonl --results results.jsonl \
      --measured-on DATE --driver VERSION

A record has the case as `tonnage fit --batch` reads it, what vLLM took, and what the calculation
said when it was measured, so that a later correction cannot hide the error before it.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

from accuracy.hardware import RECORDS, hardware_starts
from tonnage.catalog.load import load_catalog
from tonnage.cli.fit.batch import predict_fit
from tonnage.cli.fit.case import parse_case

_LEFT_OUT: Final = ("id", "outcome", "cause", "error", "tail")


def main() -> None:
    """Append a record for each start, unless there is one; a start that failed has none."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--measured-on", required=True, help="date, as 2026-11-27")
    parser.add_argument("--driver", required=True, help="version of the GPU's driver")
    asked = parser.parse_args()
    cases = {case["id"]: case for case in _lines(asked.cases)}
    recorded = {start.case.id for start in hardware_starts()}
    added = 0
    with RECORDS.open("a", encoding="utf-8") as stream:
        for result in _lines(asked.results):
            if result["outcome"] != "started" or result["id"] in recorded:
                continue
            record = _record(cases[result["id"]], result, asked.measured_on, asked.driver)
            stream.write(json.dumps(record) + "\n")
            added += 1
    print(f"{added} records added to {RECORDS}")


def _record(
    case: dict[str, Any], result: dict[str, Any], measured_on: str, driver: str
) -> dict[str, Any]:
    question = case["question"]
    speeds = result.pop("speeds", None)
    return {
        "case": question,
        "heldOut": case["heldOut"],
        "measuredOn": measured_on,
        "driver": driver,
        "arguments": case["arguments"],
        "outcome": result["outcome"],
        "observed": {name: value for name, value in result.items() if name not in _LEFT_OUT},
        "predictedThen": predict_fit(parse_case(json.dumps(question)), load_catalog()),
        "speeds": speeds,
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
