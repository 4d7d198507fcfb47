"""That replicas have left a pool, as it stands on the Deployment that they came to.

It is written with the Deployment, in the same request as the move itself, so that no crash can
part the two.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from tonnage.api.names import ANNOTATION_MOVED
from tonnage.api.text import truncate
from tonnage.kube.protocol import Object
from tonnage.reconcile.findings import format_time

_MAX_WHY_BYTES: Final = 300


class MoveReason(StrEnum):
    """Why replicas left a pool; stable words for automation."""

    FELL_BACK = "FellBack"
    REBALANCED = "Rebalanced"
    RETURNED = "Returned"


@dataclass(frozen=True, slots=True)
class Move:
    """The replicas left `pool` at that time; `why` is a sentence with numbers."""

    reason: MoveReason
    pool: str
    at: datetime
    why: str


def read_move(text: str) -> Move | None:
    """The annotation's content; one that somebody edited into nonsense counts as absent."""
    try:
        found = json.loads(text)
        reason, at = MoveReason(found["reason"]), datetime.fromisoformat(found["at"])
        pool, why = found["from"], truncate(found["why"], _MAX_WHY_BYTES)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    if at.tzinfo is None or not isinstance(pool, str):
        return None
    return Move(reason, pool, at, why)


def with_move(deployment: Object, move: Move | None) -> Object:
    """The Deployment, with the move by which its replicas came there."""
    if move is None:
        return deployment
    told = {
        "reason": move.reason.value,
        "from": move.pool,
        "at": format_time(move.at),
        "why": truncate(move.why, _MAX_WHY_BYTES),
    }
    metadata: dict[str, Any] = deployment["metadata"]
    text = json.dumps(told, separators=(",", ":"), ensure_ascii=False)
    annotations = {**metadata["annotations"], ANNOTATION_MOVED: text}
    return {**deployment, "metadata": {**metadata, "annotations": annotations}}
