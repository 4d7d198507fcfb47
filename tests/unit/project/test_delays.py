"""Every delay, interval and timeout stands in one module, where they can be read side by side."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tonnage import delays

SOURCES: Final = Path(delays.__file__).parent
WORDS: Final = {"SECONDS", "TIMEOUT", "INTERVAL", "DELAY", "BACKOFF", "BACKOFFS"}

NO_DELAYS: Final = {
    ("api/parse.py", "_SECONDS"): "units of a duration",
    ("checkpoint/volume/job.py", "_TTL_SECONDS"): "a field of a Job that is printed",
    ("checkpoint/volume/job.py", "_ACTIVE_DEADLINE_SECONDS"): "a field of a Job that is printed",
    ("demand/terms.py", "_LONGEST_SECONDS"): "what a spec may say",
    (
        "placement/batches/integer_program.py",
        "TIME_LIMIT_SECONDS",
    ): "of a solver; the operator has none",
    ("reconcile/scheduling/retain.py", "_LONGEST_WAIT_SECONDS"): "the end of the calendar",
    ("controller/metrics/queue_and_api.py", "_SECONDS"): "buckets of a histogram",
    ("telemetry/cache.py", "_OLDEST_SAMPLE_SECONDS"): "the age of a sample",
    ("telemetry/series.py", "MAX_CLOCK_GAP_SECONDS"): "between two clocks",
}


def find_constants() -> Iterator[tuple[str, str]]:
    """Module and name of each constant that is named like a delay."""
    for source in SOURCES.rglob("*.py"):
        module = source.relative_to(SOURCES).as_posix()
        for node in ast.parse(source.read_text()).body:
            match node:
                case (
                    ast.AnnAssign(target=ast.Name(id=name))
                    | ast.Assign(targets=[ast.Name(id=name)])
                ):
                    words = set(name.strip("_").split("_"))
                    if module != "delays.py" and words & WORDS and "PER" not in words:
                        yield module, name


def test_no_other_module_defines_delays() -> None:
    assert set(find_constants()) == set(NO_DELAYS)


@pytest.mark.parametrize("name", [name for name in vars(delays) if name.isupper()])
def test_a_delay_is_a_positive_time(name: str) -> None:
    value = getattr(delays, name)
    assert all(seconds > 0 for seconds in (value if isinstance(value, tuple) else (value,)))


def test_a_leader_that_cannot_renew_ends_before_another_takes_over() -> None:
    assert delays.RENEW < delays.RENEW_DEADLINE < delays.LEASE
    assert delays.LEASE_TIMEOUT < delays.RENEW_DEADLINE


def test_a_live_watch_is_never_treated_as_silent() -> None:
    bookmarks = 60.0
    assert bookmarks < delays.WATCH_SILENT < delays.WATCH_TIMEOUT
