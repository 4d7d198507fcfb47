"""Carrying out a plan's actions, one write after the other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.kube.protocol import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeApi,
    NotFoundError,
    Object,
    ObjectReader,
)
from tonnage.reconcile.accept import Refused, may_serve, refuse_child, refuse_name, was_taken
from tonnage.reconcile.actions import Action, Apply, Scale, pinned
from tonnage.reconcile.children import is_controlled_by
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.optional_child import TOLERATED, OptionalChildError, describe_error

_RETRY_FORBIDDEN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why only the first `done` actions are carried out: a refusal that no retry can mend."""

    why: Refused
    done: int


async def find_name_conflict(
    api: ObjectReader, observation: Observation, actions: Iterable[Action]
) -> Refused | None:
    """The first child to be made whose name somebody else has, as the refusal that carrying the
    actions out would end in."""
    for action in actions:
        if isinstance(action, Apply) and not action.exists:
            taken = await _find(api, action)
            if taken is not None and not is_controlled_by(taken, observation.uid):
                return refuse_name(taken, observation.key.name)
    return None


async def execute(
    api: KubeApi, observation: Observation, actions: Sequence[Action]
) -> Stopped | None:
    """Carry out the actions in their order; where one is refused for good, that. Where a name was
    taken at the last look and nothing may serve, nothing is made before all names are free: it
    would be given back at once.

    Raises any other ApiError at the first action that fails, ForbiddenError with the right that
    the operator lacks among them.
    """
    if was_taken(observation) and not may_serve(observation):
        taken = await find_name_conflict(api, observation, actions)
        if taken is not None:
            return Stopped(taken, 0)
    for done, action in enumerate(actions):
        why = await _try(api, observation, action)
        if why is not None:
            return Stopped(why, done)
    return None


async def _try(api: KubeApi, observation: Observation, action: Action) -> Refused | None:
    try:
        if isinstance(action, Apply) and not action.exists:
            return await _make(api, observation, action)
        await _execute(api, action)
    except InvalidError as error:
        return refuse_child(error, retry_after_seconds=None)
    except ForbiddenError as error:
        if error.right is not None:
            raise
        # A quota or an admission, which somebody may change.
        return refuse_child(error, retry_after_seconds=_RETRY_FORBIDDEN_SECONDS)
    return None


async def _make(api: KubeApi, observation: Observation, new: Apply) -> Refused | None:
    """Make a child that no list showed. Where its name is taken all the same, only ours is changed:
    one that was made since, or that lost its label. A name that was taken is asked for first, so
    that waiting for it writes nothing."""
    taken = await _find(api, new) if was_taken(observation) else None
    if taken is None:
        try:
            await api.create(new.kind, new.body)
        except ConflictError:
            taken = await _find(api, new)
            if taken is None:
                raise
    if taken is None:
        return None
    if not is_controlled_by(taken, observation.uid):
        return refuse_name(taken, observation.key.name)
    await api.apply(new.kind, pinned(new.body, taken["metadata"]["uid"]))
    return None


async def _find(api: ObjectReader, new: Apply) -> Object | None:
    metadata = new.body["metadata"]
    try:
        return await api.get(new.kind, metadata["namespace"], metadata["name"])
    except NotFoundError:
        return None


async def execute_optional(api: KubeApi, actions: Iterable[Action]) -> OptionalChildError | None:
    """Carry out actions that may fail without harm; what is in the way of one, if anything is.

    Raises ConflictError, NotFoundError and NotLeadingError: another look will help, or none.
    """
    for action in actions:
        try:
            await _execute(api, action)
        except TOLERATED as error:
            return describe_error(error, action.kind)
    return None


async def _execute(api: KubeApi, action: Action) -> None:
    if isinstance(action, Apply):
        # What was not there to be read is only made: whoever was quicker keeps theirs.
        await (api.apply if action.exists else api.create)(action.kind, action.body)
    elif isinstance(action, Scale):
        await api.scale(action.kind, action.child.body, action.replicas)
    else:
        child = action.child
        await api.delete(
            action.kind, action.namespace, child.name, child.uid, child.resource_version
        )
