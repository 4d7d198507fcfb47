"""A recording of what one release of the operator left in a cluster: objects and field managers.

`e2e.recordings.record` makes one; tests of upgrades give it to a later operator. The fields of one
field manager are cut out of an object by its `metadata.managedFields`, so that a test can apply
them as that manager did.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from e2e.harness.rest import Json

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "upgrades"
"""Where the recordings lie, each named by the commit of the operator that made it."""

USER_MANAGER = "e2e-admin"
"""The field manager by which the recorded user applied."""


@dataclass(frozen=True)
class Recording:
    """Objects of one cluster at one moment; `commit` is the operator's, in short."""

    commit: str
    taken_at: datetime
    objects: tuple[Json, ...]

    @staticmethod
    def load(path: Path) -> Recording:
        """Read a recording that `save` wrote."""
        document = json.loads(gzip.decompress(path.read_bytes()))
        taken_at = datetime.fromisoformat(document["takenAt"])
        return Recording(document["commit"], taken_at, tuple(document["objects"]))

    @staticmethod
    def of(commit: str, objects: Iterable[Json]) -> Recording:
        """A recording made now, in an order that does not depend on that of the lists."""
        taken_at = datetime.now(UTC).replace(microsecond=0)
        return Recording(commit, taken_at, tuple(sorted(objects, key=_identity)))

    def save(self, path: Path) -> None:
        """Write the recording; the same content gives the same bytes."""
        document = {
            "commit": self.commit,
            "takenAt": self.taken_at.isoformat(),
            "objects": self.objects,
        }
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))

    def of_kind(self, kind: str) -> list[Json]:
        """Copies of all recorded objects of a kind, as `Deployment`."""
        return [json.loads(json.dumps(body)) for body in self.objects if body["kind"] == kind]


def _identity(body: Json) -> tuple[str, str, str]:
    metadata = body["metadata"]
    return body["kind"], metadata.get("namespace", ""), metadata["name"]


def managers(body: Json) -> Iterator[tuple[str, str, Json]]:
    """Each field manager of an object, the subresource it wrote ("" for the object), its fields."""
    for entry in body["metadata"].get("managedFields") or []:
        yield entry["manager"], entry.get("subresource", ""), entry["fieldsV1"]


def part_of(body: Json, manager: str, *subresources: str) -> Json:
    """What this manager has to apply to own the fields that it owns of `body`.

    Counted are its writes to the object itself, or to these subresources.
    """
    fields: Json = {}
    for name, subresource, owned in managers(body):
        if name == manager and subresource in (subresources or ("",)):
            fields = _union(fields, owned)
    identity = {
        key: body["metadata"][key] for key in ("name", "namespace") if key in body["metadata"]
    }
    part = _select(body, fields) if fields else {}
    part["metadata"] = part.get("metadata", {}) | identity
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], **part}


def _union(one: Json, other: Json) -> Json:
    return one | {key: _union(one.get(key, {}), fields) for key, fields in other.items()}


def _select(value: Any, fields: Mapping[str, Any]) -> Any:
    """The part of `value` that a `fieldsV1` names; all of it where that names nothing inside."""
    names = {key: inside for key, inside in fields.items() if key != "."}
    if not names:
        return {} if "." in fields and isinstance(value, dict) else value
    if isinstance(value, list):
        return _select_items(value, names)
    return {
        key.removeprefix("f:"): _select(value[key.removeprefix("f:")], inside)
        for key, inside in names.items()
        if key.removeprefix("f:") in value
    }


def _select_items(items: list[Any], names: Mapping[str, Any]) -> list[Any]:
    """The items named by their keys (`k:`) or by their value (`v:`), in the list's order."""
    selected = []
    for item in items:
        for name, inside in names.items():
            identity = json.loads(name[2:])
            if name.startswith("v:") and item == identity:
                selected.append(item)
            elif name.startswith("k:") and identity.items() <= item.items():
                selected.append(identity | _select(item, inside))
    return selected
