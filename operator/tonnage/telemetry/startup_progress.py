"""How far an engine has come with its start, from its log.

No engine has an endpoint before it is ready. Its log says when the next phase begins, and how many
files of weights are loaded; nothing in it says how much of a download is done.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from tonnage.api.conditions import StartPhase
from tonnage.engines.registry import engine_named

_MAX_LINE: Final = 4096
_ORDER: Final = tuple(StartPhase)

_BAR: Final = re.compile(
    r"[Ll]oading [^|]{1,80}: +[0-9]{1,3}% Completed \| (?P<loaded>[0-9]{1,6})/(?P<total>[0-9]{1,6})"
    r" \[(?:(?P<hours>[0-9]{1,3}):)?(?P<minutes>[0-9]{2}):(?P<seconds>[0-9]{2})<"
)
"""tqdm's bar in the format that vLLM sets (vLLM 0.32.0 model_executor/model_loader/weight_utils.py,
_BAR_FORMAT), and SGLang too."""


_STREAMED: Final = " using Runai Model Streamer:"
"""In the bar of the streamer, which counts tensors (the same module,
runai_safetensors_weights_iterator)."""


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """Files of weights that are loaded, of `total`, after `elapsed` of loading; for the streamer,
    which reads all files at once, tensors."""

    loaded: int
    total: int
    elapsed: timedelta
    unit: str = "file"

    @property
    def percent(self) -> int:
        """The loaded share, rounded down."""
        return 100 * self.loaded // self.total

    @property
    def remaining(self) -> timedelta | None:
        """Time for the other files at the rate so far; None before there is a rate."""
        if self.loaded == 0 or not self.elapsed:
            return None
        return self.elapsed * (self.total - self.loaded) / self.loaded


@dataclass(frozen=True, slots=True)
class LogProgress:
    """When each phase that was reached began, in order, and the files that are loaded."""

    reached: Mapping[StartPhase, datetime] = field(default_factory=dict)
    files: LoadedFiles | None = None

    @property
    def phase(self) -> StartPhase | None:
        """The last phase that was reached; None before the first."""
        return max(self.reached, key=_ORDER.index, default=None)

    def after(self, known: "LogProgress") -> "LogProgress":
        """This progress, read from the end of a log, with what an earlier end of it said: a phase
        began when it was seen first."""
        reached = {**self.reached, **known.reached}
        ordered = {phase: reached[phase] for phase in _ORDER if phase in reached}
        return LogProgress(ordered, self.files or known.files)


NO_PROGRESS: Final = LogProgress()


def read_progress(log: str, engine: str = "") -> LogProgress:
    """Read the progress from a log whose lines begin with a time, as the API server gives it with
    `timestamps=true`. Lines without a time, and unknown ones, change nothing. `engine` is the name
    of the engine, "" where it is unknown."""
    phases = engine_named(engine).startup_log.phases
    reached: dict[StartPhase, datetime] = {}
    files = None
    for at, line in _timed_lines(log):
        phase = next((phase for phase, words in phases if words.search(line)), None)
        if phase is None:
            continue
        last = next(reversed(reached), None)
        if last is None or _ORDER.index(phase) > _ORDER.index(last):
            reached[phase] = at
        if phase is StartPhase.LOADING:
            files = _read_bar(line) or files
    return LogProgress(reached, files)


def _timed_lines(log: str) -> Iterator[tuple[datetime, str]]:
    for line in log.split("\n"):
        time, _, text = line[:_MAX_LINE].partition(" ")
        try:
            at = datetime.fromisoformat(time)
        except ValueError:
            continue
        if at.tzinfo is not None:
            yield at, text.strip("\r").rpartition("\r")[2]  # a bar overwrites the one before


def _read_bar(line: str) -> LoadedFiles | None:
    match = _BAR.search(line)
    if match is None:
        return None
    loaded, total = int(match["loaded"]), int(match["total"])
    if not 0 < total >= loaded:
        return None
    hours, minutes, seconds = (int(match[part] or 0) for part in ("hours", "minutes", "seconds"))
    elapsed = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return LoadedFiles(loaded, total, elapsed, "tensor" if _STREAMED in line else "file")
