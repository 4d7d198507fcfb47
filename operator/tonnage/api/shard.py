"""The part of a fleet that one of several operators works for: what one label names.

A label has one value or is not there. So whatever operators there are, no node, no pool and no
object is of two shards, and nobody has to keep lists of selectors from overlapping.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.names import LABEL_SHARD, MAX_NAME_LENGTH


@dataclass(frozen=True, slots=True)
class Shard:
    """`name` is what the label says; None is the shard of all that have no such label."""

    name: str | None = None

    @property
    def labels(self) -> Mapping[str, str | None]:
        """What selects its objects; None stands for a label that must not be there."""
        return {LABEL_SHARD: self.name}

    @property
    def own_labels(self) -> dict[str, str]:
        """What its operator writes on what it makes."""
        return {} if self.name is None else {LABEL_SHARD: self.name}

    def __str__(self) -> str:
        return f"shard {self.name}" if self.name else "no shard"

    def has(self, obj: Mapping[str, Any]) -> bool:
        """Whether an object is of this shard."""
        return shard_of(obj) == self

    def qualify(self, name: str) -> str:
        """The name of something of which each shard may have one: "<shard>-<name>"."""
        return name if self.name is None else f"{self.name}-{name}"[:MAX_NAME_LENGTH].strip("-")


UNNAMED_SHARD: Final = Shard()


def shard_of(obj: Mapping[str, Any]) -> Shard:
    """The shard that an object is of. Never raises: what is no label names no shard."""
    metadata = obj.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    name = labels.get(LABEL_SHARD) if isinstance(labels, dict) else None
    return Shard(name) if isinstance(name, str) else UNNAMED_SHARD
