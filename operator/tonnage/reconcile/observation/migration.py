"""The migration of replicas from another pool, as an annotation of the Deployment they came to.

It is written with the Deployment, in the same request as the migration itself, so that no crash can
separate the two.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from tonnage.api.names import ANNOTATION_MOVED
from tonnage.api.text import read_json_object, truncate
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.findings import format_time

_MAX_WHY_BYTES: Final = 300


class MigrationReason(StrEnum):
    """Why replicas left a pool; stable words for automation."""

    FELL_BACK = "FellBack"
    REBALANCED = "Rebalanced"
    RETURNED = "Returned"


@dataclass(frozen=True, slots=True)
class Migration:
    """The replicas left `pool` at that time; `why` is a sentence with numbers."""

    reason: MigrationReason
    pool: str
    at: datetime
    why: str


def read_migration(text: str) -> Migration | None:
    """Read the annotation; an unreadable one counts as absent."""
    try:
        content = read_json_object(text) or {}
        reason, at = MigrationReason(content["reason"]), datetime.fromisoformat(content["at"])
        pool, why = content["from"], truncate(content["why"], _MAX_WHY_BYTES)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if at.tzinfo is None or not isinstance(pool, str):
        return None
    return Migration(reason, pool, at, why)


def with_migration(deployment: Object, move: Migration | None) -> Object:
    """The Deployment, annotated with the move that brought its replicas there."""
    if move is None:
        return deployment
    content = {
        "reason": move.reason.value,
        "from": move.pool,
        "at": format_time(move.at),
        "why": truncate(move.why, _MAX_WHY_BYTES),
    }
    metadata: dict[str, Any] = deployment["metadata"]
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    annotations = {**metadata["annotations"], ANNOTATION_MOVED: text}
    return {**deployment, "metadata": {**metadata, "annotations": annotations}}
