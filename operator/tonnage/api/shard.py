"""A shard: the objects that one of several operators manages, selected by a label.

A label has at most one value, so no object belongs to two shards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tonnage.api.names import LABEL_SHARD, MAX_NAME_LENGTH


@dataclass(frozen=True, slots=True)
class Shard:
    """The objects whose shard label is `name`, or that have no shard label if `name` is None."""

    name: str | None = None

    @property
    def labels(self) -> Mapping[str, str | None]:
        """Selector of the objects; None means that the label must be absent."""
        return {LABEL_SHARD: self.name}

    @property
    def own_labels(self) -> dict[str, str]:
        """Labels that the operator of this shard sets on objects that it creates."""
        return {} if self.name is None else {LABEL_SHARD: self.name}

    def __str__(self) -> str:
        return f"shard {self.name}" if self.name else "no shard"

    def has(self, obj: Mapping[str, Any]) -> bool:
        """Whether an object belongs to this shard."""
        return shard_of(obj) == self

    def qualify(self, name: str) -> str:
        """Name of an object that each shard can have once: "<shard>-<name>"."""
        return name if self.name is None else f"{self.name}-{name}"[:MAX_NAME_LENGTH].strip("-")


UNNAMED_SHARD: Final = Shard()


def shard_of(obj: Mapping[str, Any]) -> Shard:
    """The shard of an object. Never raises: a malformed label counts as absent."""
    metadata = obj.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    name = labels.get(LABEL_SHARD) if isinstance(labels, dict) else None
    return Shard(name) if isinstance(name, str) else UNNAMED_SHARD
