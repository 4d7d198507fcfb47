"""What the pods of one object do that are not ready yet, and the Job that downloads its weights,
and how far they have come."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tonnage.api.conditions import StartPhase
from tonnage.api.model import PrefetchStatus
from tonnage.api.status import ModelStatus
from tonnage.cli.output import make_table
from tonnage.fit.messages import GIB, format_count
from tonnage.reconcile.observation.findings import format_age, format_time
from tonnage.reconcile.observation.optional.download_jobs import DownloadJob
from tonnage.reconcile.observation.pods.starts import PodStart
from tonnage.telemetry.download_progress import DownloadProgress
from tonnage.telemetry.startup_progress import LoadedFiles

LOGS: Final = 50
"""Logs that one explanation reads."""

_BAR_COLUMNS: Final = 20


def tabulate_starts(
    starts: Mapping[str, PodStart],
    job: DownloadJob | None,
    model: ModelStatus | None,
    now: datetime,
) -> Table:
    """One row for the Job that downloads, and for each starting pod, with a bar while it loads
    weights."""
    table = make_table("START", "PHASE", "FOR", "PROGRESS", right=("FOR",))
    if job is not None:
        bar = Text() if job.progress is None else _draw_download(job.progress)
        phase, age = StartPhase.DOWNLOADING, format_age(now - job.created)
        table.add_row(escape(job.child.name), phase, age, bar)
    for pod, start in starts.items():
        age = format_age(now - start.since)
        table.add_row(escape(pod), start.phase, age, _show_progress(start, model))
    return table


def format_prefetch(prefetch: PrefetchStatus) -> str:
    """One line on the nodes that get the weights before replicas come."""
    nodes = format_count(prefetch.nodes, "node")
    reason = f"; {prefetch.message}" if prefetch.message else ""
    return f"prefetch: weights on {prefetch.ready_nodes} of {nodes} without replicas{reason}"


def start_data(start: PodStart | None) -> dict[str, Any]:
    """The start of a pod as JSON data; empty for a pod that is not starting."""
    if start is None:
        return {}
    data: dict[str, Any] = {"phase": start.phase.value, "since": format_time(start.since)}
    if (files := start.files) is not None:
        remaining = files.remaining
        data |= {
            "loadedFiles": files.loaded,
            "files": files.total,
            "percent": files.percent,
            "remainingSeconds": None if remaining is None else round(remaining.total_seconds()),
        }
    return {"start": data | _progress_data(start.download)}


def running_download(job: DownloadJob | None) -> DownloadJob | None:
    """The Job while it downloads; None before and after."""
    return None if job is None or job.is_complete or job.failed else job


def download_data(job: DownloadJob | None) -> dict[str, Any]:
    """The Job that downloads as JSON data; empty without one."""
    if job is None:
        return {}
    data: dict[str, Any] = {"job": job.child.name, "since": format_time(job.created)}
    return {"download": data | _progress_data(job.progress)}


def _progress_data(progress: DownloadProgress | None) -> dict[str, Any]:
    if progress is None:
        return {}
    remaining = progress.remaining
    return {
        "bytes": progress.present,
        "totalBytes": progress.total,
        "percent": progress.percent,
        "remainingSeconds": None if remaining is None else round(remaining.total_seconds()),
    }


def _show_progress(start: PodStart, model: ModelStatus | None) -> Text:
    if start.files is not None:
        return _draw_bar(start.files)
    if start.download is not None:
        return _draw_download(start.download)
    if start.phase is StartPhase.DOWNLOADING and model is not None:
        return Text(
            f"{model.weights_gi_b:.1f} GiB of weights; the log does not say how much is there"
        )
    return Text()


def _draw_bar(files: LoadedFiles) -> Text:
    words = f"{files.loaded} of {format_count(files.total, files.unit)}"
    return _draw(files.percent, words, files.remaining)


def _draw_download(progress: DownloadProgress) -> Text:
    words = f"{progress.present / GIB:.1f} of {progress.total / GIB:.1f} GiB"
    return _draw(progress.percent, words, progress.remaining)


def _draw(percent: int, words: str, remaining: timedelta | None) -> Text:
    done = _BAR_COLUMNS * percent // 100
    words = f" {percent} %, {words}"
    if remaining:
        words += f", about {format_age(remaining)} left"
    return Text.assemble(("█" * done, "cyan"), ("░" * (_BAR_COLUMNS - done), "green"), words)
