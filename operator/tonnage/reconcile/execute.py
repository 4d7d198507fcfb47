"""Carry out a plan's actions, one write after the other.

The operator puts the answer to each write into the stores, so that the next reconcile of the object
never acts on a state older than the operator's own writes.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.informers.stores import Stores
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, LEADER_WORKER_SETS, SERVICES
from tonnage.kube.protocol import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    Kind,
    KubeApi,
    NotFoundError,
    Object,
    ObjectParts,
    ObjectReader,
    Selection,
)
from tonnage.reconcile.accept import (
    Refused,
    may_serve,
    refuse_child,
    refuse_leader_name,
    refuse_name,
    was_refused,
    was_taken,
)
from tonnage.reconcile.actions import (
    Action,
    Apply,
    Scale,
    changed_by_admission,
    pin_to_uid,
    with_annotations,
)
from tonnage.reconcile.observation.children import Child, is_controlled_by
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.optional_child import (
    TOLERATED,
    OptionalChildError,
    describe_error,
)
from tonnage.workloads.registry import WORKLOAD_KINDS


class Writer:
    """Writes to one API server and stores every answer."""

    def __init__(self, api: KubeApi, stores: Stores) -> None:
        self._api = api
        self._stores = stores

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """Read one child live. Raises NotFoundError."""
        return await self._api.get(kind, namespace, name)

    async def still_exists(self, observation: Observation) -> bool:
        """Read live whether the InferenceDeployment is the one that was observed and is not being
        deleted; if not, store what is there."""
        namespace, name = observation.key
        bodies: list[Object] = []
        # A list, which the role allows. Its errors, NotFoundError as well, do not concern the
        # object.
        selection = Selection(INFERENCE_DEPLOYMENTS, namespace, fields=f"metadata.name={name}")
        await self._api.list_pages(selection, ObjectParts.FULL, bodies.append)
        live = next((body for body in bodies if body["metadata"]["name"] == name), None)
        if live is None:
            uid = observation.uid
            self._stores.remove_deleted(INFERENCE_DEPLOYMENTS, namespace, name, uid)
            return False
        metadata = live["metadata"]
        if metadata["uid"] == observation.uid and "deletionTimestamp" not in metadata:
            return True
        self._stores.put_written(INFERENCE_DEPLOYMENTS, live)
        return False

    async def apply(self, kind: Kind, body: Object) -> None:
        """Server-side apply as field manager `tonnage`, forced."""
        answer = await self._api.apply(kind, body)
        self._stores.put_written(kind, answer)
        await self._note_admission(kind, body, answer)

    async def create(self, kind: Kind, body: Object) -> None:
        """Create an object. Raises ConflictError if one of that name exists."""
        answer = await self._api.create(kind, body)
        self._stores.put_written(kind, answer)
        await self._note_admission(kind, body, answer)

    async def _note_admission(self, kind: Kind, body: Object, answer: Object) -> None:
        """Where a webhook changed the template of a Deployment, write down what came of it: later
        reconciles find neither a change nor a reason to apply it again."""
        note = changed_by_admission(body, answer) if kind in WORKLOAD_KINDS else {}
        if note:
            noted = with_annotations(pin_to_uid(body, answer["metadata"]["uid"]), note)
            self._stores.put_written(kind, await self._api.apply(kind, noted))

    async def scale(self, kind: Kind, child: Child, replicas: int) -> None:
        """Set the replicas of a child, never of another object of its name."""
        self._stores.put_written(kind, await self._api.scale(kind, child.body, replicas))

    async def delete(self, kind: Kind, child: Child) -> None:
        """Delete a child exactly as it was observed."""
        terminating = await self._api.delete(
            kind, child.namespace, child.name, child.uid, child.resource_version
        )
        if terminating is None:
            self._stores.remove_deleted(kind, child.namespace, child.name, child.uid)
        else:
            self._stores.put_written(kind, terminating)

    async def apply_status(self, kind: Kind, body: Object) -> None:
        """Server-side apply of /status as field manager `tonnage-status`, forced.

        The event of this write may arrive before the answer and must not requeue the object.
        """
        metadata = body["metadata"]
        with self._stores.write_in_flight(kind, metadata["namespace"], metadata["name"]):
            self._stores.put_written(kind, await self._api.apply_status(kind, body))


@dataclass(frozen=True, slots=True)
class Stopped:
    """The refusal that ended execution after `done` actions; a retry does not help."""

    why: Refused
    done: int


async def find_name_conflict(
    reader: ObjectReader, observation: Observation, actions: Iterable[Action]
) -> Refused | None:
    """The refusal that executing the actions would end in: the first child to be created whose name
    another object has."""
    for action in actions:
        if isinstance(action, Apply) and not action.exists:
            existing = await _get_if_exists(reader, action.kind, action.body)
            if existing is not None and not is_controlled_by(existing, observation.uid):
                return refuse_name(existing, observation.key.name)
            refused = await _find_leader_conflict(reader, action)
            if refused is not None:
                return refused
    return None


async def _find_leader_conflict(reader: ObjectReader, action: Apply) -> Refused | None:
    """The refusal of a LeaderWorkerSet to be created whose name a Service has that no
    LeaderWorkerSet of this name has left."""
    if action.kind != LEADER_WORKER_SETS:
        return None
    service = await _get_if_exists(reader, SERVICES, action.body)
    if service is None:
        return None
    owners = service["metadata"].get("ownerReferences") or []
    own = {"kind": LEADER_WORKER_SETS.kind, "name": action.body["metadata"]["name"]}
    is_own = any(own.items() <= owner.items() for owner in owners)
    return None if is_own else refuse_leader_name(service)


async def execute(
    writer: Writer, observation: Observation, actions: Sequence[Action]
) -> Stopped | None:
    """Carry out the actions in order and stop at the first permanent refusal.

    If the last reconcile found a name taken and no replica may serve, execute creates no child
    before all names are free: the operator would delete it again at once. If it was refused a
    child, Services come first for the same reason.

    Raises any other ApiError at the first action that fails, also a ForbiddenError that names the
    right that the operator lacks.
    """
    if was_taken(observation) and not may_serve(observation):
        conflict = await find_name_conflict(writer, observation, actions)
        if conflict is not None:
            return Stopped(conflict, 0)
    if was_refused(observation, Reason.CHILD_REFUSED) and not may_serve(observation):
        actions = sorted(actions, key=lambda action: action.kind != SERVICES)
    for done, action in enumerate(actions):
        refused = await _execute_or_refuse(writer, observation, action)
        if refused is not None:
            return Stopped(refused, done)
    return None


async def _execute_or_refuse(
    writer: Writer, observation: Observation, action: Action
) -> Refused | None:
    try:
        if isinstance(action, Apply) and not action.exists:
            return await _create(writer, observation, action)
        await _execute(writer, action)
    except InvalidError as error:
        return refuse_child(error, retry_after_seconds=None)
    except ForbiddenError as error:
        if error.right is not None:
            raise
        # A quota or an admission policy, which an administrator may change.
        return refuse_child(error, retry_after_seconds=delays.REQUEUE_FORBIDDEN)
    return None


async def _create(writer: Writer, observation: Observation, action: Apply) -> Refused | None:
    """Create a child that no list showed. If its name is taken nonetheless, change the existing
    object only if this InferenceDeployment controls it: it was created since, or lost its label.
    A name that was taken is read first, so that waiting for it writes nothing."""
    refused = await _find_leader_conflict(writer, action)
    if refused is not None:
        return refused
    kind, body = action.kind, action.body
    existing = await _get_if_exists(writer, kind, body) if was_taken(observation) else None
    if existing is None:
        try:
            await writer.create(kind, body)
        except ConflictError:
            existing = await _get_if_exists(writer, kind, body)
            if existing is None:
                raise
    if existing is None:
        return None
    if not is_controlled_by(existing, observation.uid):
        return refuse_name(existing, observation.key.name)
    await writer.apply(kind, pin_to_uid(body, existing["metadata"]["uid"]))
    return None


async def _get_if_exists(reader: ObjectReader, kind: Kind, named: Object) -> Object | None:
    """The object of this kind with the name of another object."""
    metadata = named["metadata"]
    try:
        return await reader.get(kind, metadata["namespace"], metadata["name"])
    except NotFoundError:
        return None


async def execute_optional(writer: Writer, actions: Iterable[Action]) -> OptionalChildError | None:
    """Carry out actions that may fail without harm, in their order; return the error of the first
    that fails, and leave out the rest.

    Raises ConflictError, NotFoundError and NotLeadingError: the next reconcile resolves them, or
    the next leader does.
    """
    for action in actions:
        try:
            await _execute(writer, action)
        except TOLERATED as error:
            return describe_error(error, action.kind)
    return None


async def execute_each(
    writer: Writer, observation: Observation, actions: Iterable[Action]
) -> list[tuple[Action, str]]:
    """Carry out actions that may fail without harm and do not depend on each other; return those
    that fail, with the causes.

    A conflict is such a cause, for another object may have the name for ever. Raises
    NotLeadingError: the next leader carries the rest out.
    """
    failed: list[tuple[Action, str]] = []
    for action in actions:
        try:
            await _execute(writer, action)
        except TOLERATED as error:
            failed.append((action, describe_error(error, action.kind).message))
        except (ConflictError, NotFoundError) as error:
            failed.append((action, await _explain(error, writer, observation, action)))
    return failed


async def _explain(
    error: ApiError, writer: Writer, observation: Observation, action: Action
) -> str:
    """The foreign object that has the name, where there is one and it can be read; the API server
    says of a conflict only that the object has changed."""
    taken: Refused | None = None
    with suppress(*TOLERATED):
        taken = await find_name_conflict(writer, observation, [action])
    return str(error) if taken is None else taken.message


async def _execute(writer: Writer, action: Action) -> None:
    if isinstance(action, Apply):
        # An object that was not observed is only created: one that exists by now stays as it is.
        await (writer.apply if action.exists else writer.create)(action.kind, action.body)
    elif isinstance(action, Scale):
        await writer.scale(action.kind, action.child, action.replicas)
    else:
        await writer.delete(action.kind, action.child)
