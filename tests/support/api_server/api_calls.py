"""Calls of the API server in memory, and which of them fail."""

from dataclasses import dataclass
from typing import Literal

from tonnage.kube.protocol import Kind

Verb = Literal[
    "get",
    "list",
    "apply",
    "apply_status",
    "delete",
    "scale",
    "create_event",
    "pod_log",
    "put_lease",
]
WRITES: frozenset[str] = frozenset(
    {"apply", "apply_status", "delete", "scale", "create_event", "put_lease"}
)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and whether it changed anything."""

    verb: Verb
    kind: Kind
    namespace: str | None
    name: str | None
    effective: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Which call fails, and how; `after`: it is done, and its answer is lost."""

    error: BaseException
    after: bool
    verb: Verb | None = None
    kind: Kind | None = None
    write: int | None = None
    call: int | None = None

    def hits(self, verb: Verb, kind: Kind, write: int, call: int) -> bool:
        if self.call is not None:
            return self.call == call
        if self.write is not None:
            return verb in WRITES and self.write == write
        return self.verb in (None, verb) and self.kind in (None, kind)
