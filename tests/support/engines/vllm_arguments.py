"""Lists of arguments, read by the parser of a real `vllm serve` in an environment of its own."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).parents[1] / "vllm_parser" / "read_arguments.py"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one list was read as, by the parser's own names; or why it was refused."""

    values: dict[str, Any] | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class Reading:
    """The help for all flags, the environment variables of vLLM, and an answer for each list."""

    help: str
    variables: frozenset[str]
    answers: tuple[Answer, ...]


def read_arguments(interpreter: Path, lists: Sequence[Sequence[str]]) -> Reading:
    """Have all lists read by one process: importing vLLM takes longer than thousands of lists."""
    result = subprocess.run(
        [interpreter, "-P", _SCRIPT],
        input=json.dumps(lists),
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(_SCRIPT.parent), "HOME": "/nonexistent"},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    reading = json.loads(result.stdout)
    answers = tuple(Answer(**answer) for answer in reading["answers"])
    return Reading(reading["help"], frozenset(reading["variables"]), answers)
