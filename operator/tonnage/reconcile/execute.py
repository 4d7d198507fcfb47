"""Carrying out a plan's actions, one write after the other.

The answer to each write goes into the stores, so that the next reconcile of the object never acts
on a world before the operator's own writes.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from tonnage import delays
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    Kind,
    KubeApi,
    NotFoundError,
    Object,
    ObjectReader,
    Parts,
    Selection,
)
from tonnage.reconcile.accept import Refused, may_serve, refuse_child, refuse_name, was_taken
from tonnage.reconcile.actions import Action, Apply, Scale, pinned
from tonnage.reconcile.children import Child, is_controlled_by
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.optional_child import TOLERATED, OptionalChildError, describe_error


class WrittenObjects(Protocol):
    """Where the answers to own writes are kept."""

    def write_in_flight(
        self, kind: Kind, namespace: str | None, name: str
    ) -> AbstractContextManager[None]:
        """While the object is written, its events wait until the block ends."""
        ...

    def put_written(self, kind: Kind, obj: Object) -> None:
        """The object is so now."""
        ...

    def remove_deleted(self, kind: Kind, namespace: str | None, name: str, uid: str) -> None:
        """The object is deleted."""
        ...


class Writer:
    """Writes to one API server; every answer goes into the stores."""

    def __init__(self, api: KubeApi, written: WrittenObjects) -> None:
        self._api = api
        self._written = written

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """Read one object live. Raises NotFoundError."""
        if kind != INFERENCE_DEPLOYMENTS:
            return await self._api.get(kind, namespace, name)
        # Of these the operator's role grants lists alone: no other code reads one by name.
        bodies: list[Object] = []
        selection = Selection(kind, namespace, fields=f"metadata.name={name}")
        await self._api.each(selection, Parts.FULL, bodies.append)
        for body in bodies:
            if body["metadata"]["name"] == name:
                return body
        raise NotFoundError(f"{kind.kind} {namespace}/{name} does not exist")

    async def apply(self, kind: Kind, body: Object) -> None:
        """Server-side apply as field manager `tonnage`, forced."""
        self._written.put_written(kind, await self._api.apply(kind, body))

    async def create(self, kind: Kind, body: Object) -> None:
        """Make an object. Raises ConflictError where there is one of that name."""
        self._written.put_written(kind, await self._api.create(kind, body))

    async def scale(self, kind: Kind, child: Child, replicas: int) -> None:
        """Set the number of replicas of a child, and of no namesake."""
        self._written.put_written(kind, await self._api.scale(kind, child.body, replicas))

    async def delete(self, kind: Kind, namespace: str, child: Child) -> None:
        """Delete a child exactly as it was observed."""
        kept = await self._api.delete(
            kind, namespace, child.name, child.uid, child.resource_version
        )
        if kept is None:
            self._written.remove_deleted(kind, namespace, child.name, child.uid)
        else:
            self._written.put_written(kind, kept)

    async def apply_status(self, kind: Kind, body: Object) -> None:
        """Server-side apply of /status as field manager `tonnage-status`, forced.

        Its event, which may be quicker than the answer, is not to wake the object that it is about.
        """
        metadata = body["metadata"]
        with self._written.write_in_flight(kind, metadata["namespace"], metadata["name"]):
            self._written.put_written(kind, await self._api.apply_status(kind, body))


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why only the first `done` actions are carried out: a refusal that no retry can mend."""

    why: Refused
    done: int


async def find_name_conflict(
    reader: ObjectReader, observation: Observation, actions: Iterable[Action]
) -> Refused | None:
    """The first child to be made whose name somebody else has, as the refusal that carrying the
    actions out would end in."""
    for action in actions:
        if isinstance(action, Apply) and not action.exists:
            taken = await _find(reader, action)
            if taken is not None and not is_controlled_by(taken, observation.uid):
                return refuse_name(taken, observation.key.name)
    return None


async def execute(
    writer: Writer, observation: Observation, actions: Sequence[Action]
) -> Stopped | None:
    """Carry out the actions in their order; where one is refused for good, that. Where a name was
    taken at the last look and nothing may serve, nothing is made before all names are free: it
    would be given back at once.

    Raises any other ApiError at the first action that fails, ForbiddenError with the right that
    the operator lacks among them.
    """
    if was_taken(observation) and not may_serve(observation):
        taken = await find_name_conflict(writer, observation, actions)
        if taken is not None:
            return Stopped(taken, 0)
    for done, action in enumerate(actions):
        why = await _try(writer, observation, action)
        if why is not None:
            return Stopped(why, done)
    return None


async def _try(writer: Writer, observation: Observation, action: Action) -> Refused | None:
    try:
        if isinstance(action, Apply) and not action.exists:
            return await _make(writer, observation, action)
        await _execute(writer, action)
    except InvalidError as error:
        return refuse_child(error, retry_after_seconds=None)
    except ForbiddenError as error:
        if error.right is not None:
            raise
        # A quota or an admission, which somebody may change.
        return refuse_child(error, retry_after_seconds=delays.REQUEUE_FORBIDDEN)
    return None


async def _make(writer: Writer, observation: Observation, new: Apply) -> Refused | None:
    """Make a child that no list showed. Where its name is taken all the same, only ours is changed:
    one that was made since, or that lost its label. A name that was taken is asked for first, so
    that waiting for it writes nothing."""
    taken = await _find(writer, new) if was_taken(observation) else None
    if taken is None:
        try:
            await writer.create(new.kind, new.body)
        except ConflictError:
            taken = await _find(writer, new)
            if taken is None:
                raise
    if taken is None:
        return None
    if not is_controlled_by(taken, observation.uid):
        return refuse_name(taken, observation.key.name)
    await writer.apply(new.kind, pinned(new.body, taken["metadata"]["uid"]))
    return None


async def _find(reader: ObjectReader, new: Apply) -> Object | None:
    metadata = new.body["metadata"]
    try:
        return await reader.get(new.kind, metadata["namespace"], metadata["name"])
    except NotFoundError:
        return None


async def execute_optional(writer: Writer, actions: Iterable[Action]) -> OptionalChildError | None:
    """Carry out actions that may fail without harm; what is in the way of one, if anything is.

    Raises ConflictError, NotFoundError and NotLeadingError: another look will help, or none.
    """
    for action in actions:
        try:
            await _execute(writer, action)
        except TOLERATED as error:
            return describe_error(error, action.kind)
    return None


async def _execute(writer: Writer, action: Action) -> None:
    if isinstance(action, Apply):
        # What was not there to be read is only made: whoever was quicker keeps theirs.
        await (writer.apply if action.exists else writer.create)(action.kind, action.body)
    elif isinstance(action, Scale):
        await writer.scale(action.kind, action.child, action.replicas)
    else:
        await writer.delete(action.kind, action.namespace, action.child)
