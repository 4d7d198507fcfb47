"""The records of LoRA buffers are what vLLM's own classes allocate on torch's meta device.

The test measures a quarter of them, in a minute or two. TONNAGE_GOLDEN=write measures all, and
writes accuracy/records/adapters.jsonl anew for the layouts that it lists.
"""

import json
import os
import subprocess
from pathlib import Path

from accuracy.records import FOLDER, AdapterBuild, adapter_builds, models

SCRIPT = Path(__file__).parents[2] / "support" / "vllm_lora" / "measure_buffers.py"
RECORDS = FOLDER / "adapters.jsonl"


def measure(python: Path, builds: tuple[AdapterBuild, ...]) -> list[dict[str, object]]:
    """The answers for all layouts by one process: importing vLLM takes ten seconds."""
    layouts = [
        {**build.model_dump(by_alias=True), "config": models()[build.model].config}
        for build in builds
    ]
    result = subprocess.run(
        [python, "-P", SCRIPT],
        input="\n".join(map(json.dumps, layouts)),
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(SCRIPT.parent), "HOME": "/nonexistent", "PATH": os.environ["PATH"]},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_vllm_allocates_what_the_records_say(python):
    writes = os.environ.get("TONNAGE_GOLDEN") == "write"
    builds = adapter_builds()[:: 1 if writes else 4]
    answers = measure(python, builds)
    assert [answer for answer in answers if "error" in answer] == []
    measured = [answer["layers"] for answer in answers]
    if writes:
        lines = (
            {**build.model_dump(by_alias=True, mode="json"), "layers": layers}
            for build, layers in zip(builds, measured, strict=True)
        )
        RECORDS.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return
    assert measured == [build.layers for build in builds]
