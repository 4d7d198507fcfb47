"""What a pod does on a KWOK node, chosen by a label or annotation of its template.

The stages are YAML in `kwok/`, the words of the containers are real vLLM logs in `logs/`. This
module joins the two and says which log a behaviour has.
"""

from __future__ import annotations

import json
from pathlib import Path

from e2e.harness.credentials import write_private
from e2e.harness.rest import Json

KEY = "e2e.tonnage.dev/behaviour"
LOG_KEY = "e2e.tonnage.dev/log"  # an annotation that names another file of `logs/`
WELL_KEY = "e2e.tonnage.dev/well-with"  # one that names an argument with which all is well
PACE_KEY = "e2e.tonnage.dev/log-pace"  # one that lets the log grow as it was recorded
HEALTHY = "healthy"
BEHAVIOURS = (
    HEALTHY,
    "out-of-memory",
    "exit-zero",
    "crash-loop",
    "image-pull-failure",
    "never-ready",
    "slow-start",
)

_STAGES = Path(__file__).parents[1] / "kwok"
# A kubelet keeps this much of a log as the termination message (FallbackToLogsOnError).
_MESSAGE_BYTES, _MESSAGE_LINES = 2048, 80
_BEHAVIOUR_JQ = (
    f'(.metadata.annotations // {{}})["{WELL_KEY}"] as $well '
    "| if $well != null and any((.spec.containers[0].args // [])[]; . == $well) "
    f'then "{HEALTHY}" else (.metadata.labels // {{}})["{KEY}"] '
    f'// (.metadata.annotations // {{}})["{KEY}"] // "{HEALTHY}" end'
)


def log_name(pod: Json) -> str:
    """Return which log a pod's first container writes."""
    labels = pod["metadata"].get("labels") or {}
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get(WELL_KEY) in (pod["spec"]["containers"][0].get("args") or []):
        return HEALTHY
    name = annotations.get(LOG_KEY) or labels.get(KEY) or annotations.get(KEY) or HEALTHY
    return HEALTHY if name in ("never-ready", "slow-start", "image-pull-failure") else name


def grows(pod: Json) -> bool:
    """Return whether the log grows line by line, as it was recorded."""
    annotations = pod["metadata"].get("annotations") or {}
    return bool(annotations.get(PACE_KEY) == "recorded")


def log_text(cri: str) -> str:
    """Return the text of a log in CRI format: `<time> <stream> <tag> <text>` a line."""
    return "".join(f"{line.split(' ', 3)[3]}\n" for line in cri.splitlines())


def termination_message(text: str) -> str:
    """Return what a kubelet keeps of a log: its last 80 lines, at most 2048 bytes of them."""
    kept = "".join(text.splitlines(keepends=True)[-_MESSAGE_LINES:])
    return kept.encode()[-_MESSAGE_BYTES:].decode("utf-8", "ignore")


def render_stages(logs: Path) -> str:
    """Return the configuration of KWOK: all stages, with their placeholders filled in."""
    tails = {
        path.stem: termination_message(log_text(path.read_text(encoding="utf-8")))
        for path in sorted(logs.glob("*.log"))
    }
    # A JSON string is also a string of Go's templates as long as no character needs two escapes.
    pairs = " ".join(f"{json.dumps(name)} {json.dumps(tail)}" for name, tail in tails.items())
    preamble = (_STAGES / "preamble.tpl").read_text(encoding="utf-8").strip()
    preamble = preamble.replace("@tails@", f"dict {pairs}").replace("\n", "\n      ")
    documents = [
        (_STAGES / name).read_text(encoding="utf-8")
        for name in ("nodes.yaml", "pods-start.yaml", "pods-fail.yaml")
    ]
    text = "---\n".join(documents)
    return text.replace("@preamble@", preamble).replace("@behaviour@", _BEHAVIOUR_JQ)


def write_kwok_config(path: Path, logs: Path) -> None:
    """Write the file that KWOK is started with."""
    write_private(path, render_stages(logs))
