"""Logs of starts as the API server gives them, and what a kubelet reports meanwhile."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from tests.support.in_memory.controllers import Behaviour
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.findings import format_time

REQUESTED = (
    "(Worker_TP0 pid=9) INFO 11-21 02:46:20 [gpu_model_runner.py:5037] Starting to load model m..."
)
DOWNLOADED = (
    "(Worker_TP0 pid=9) INFO 11-21 02:46:21 [weight_utils.py:530] Time spent downloading weights"
    " for m: 64.5 seconds"
)
LOADED = (
    "(Worker_TP0 pid=9) INFO 11-21 02:46:22 [gpu_model_runner.py:4879] Model loading took 15.25 GiB"
    " memory and 20.3 seconds"
)
STARTED = "INFO:     Application startup complete."


def bar(loaded: int, total: int = 30, seconds: int = 36) -> str:
    """The bar of tqdm after so many files."""
    share = 100 * loaded // total
    return (
        f"(Worker_TP0 pid=9) \rLoading safetensors checkpoint shards: {share:3}% Completed"
        f" | {loaded}/{total} [00:{seconds:02}<00:54,  3.00s/it]"
    )


def log_of(*lines: str, start: datetime, every: float = 1.0) -> str:
    """The lines, one every so many seconds."""
    return "".join(
        f"{(start + timedelta(seconds=every * number)).isoformat()} {line}\n"
        for number, line in enumerate(lines)
    )


def step(
    waiting: str | None = None,
    *,
    true: Iterable[str] = (),
    started: datetime | None = None,
    ready: bool = False,
) -> Behaviour:
    """A pod with a node whose conditions `true` hold. Its container waits for a reason, or runs
    since then."""
    holds = {"PodScheduled", *true, *(("Ready",) if ready else ())}
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "PodScheduled")
    running = {"startedAt": format_time(started)} if started else {}
    state = {"waiting": {"reason": waiting}} if waiting else {"running": running}

    def behave(pod: Object) -> Object:
        return {
            "phase": "Pending" if waiting else "Running",
            "conditions": [
                {"type": kind, "status": "True" if kind in holds else "False"} for kind in kinds
            ],
            "containerStatuses": [
                {"name": "vllm", "ready": ready, "restartCount": 0, "state": state}
            ],
        }

    return behave
