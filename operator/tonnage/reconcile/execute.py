"""Carrying out a plan's actions, one write after the other."""

from collections.abc import Iterable
from typing import Final

from tonnage.api.names import INFERENCE_DEPLOYMENT
from tonnage.kube.protocol import (
    ForbiddenError,
    InvalidError,
    KubeApi,
    NotFoundError,
    ObjectReader,
)
from tonnage.reconcile.accept import Refused, refuse_child, refuse_name
from tonnage.reconcile.actions import Action, Apply, Scale
from tonnage.reconcile.children import is_controlled_by
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.optional_child import HINDRANCES, Hindrance, hindrance_of

_RETRY_LEFTOVER_SECONDS: Final = 2.0
"""The garbage collector is about to remove children of a deleted object of the same name."""

_RETRY_FOREIGN_SECONDS: Final = 30.0
"""Objects of others are not watched, so a taken name is looked at again now and then."""

_RETRY_FORBIDDEN_SECONDS: Final = 60.0


async def find_name_conflict(
    api: ObjectReader, observation: Observation, actions: Iterable[Action]
) -> Refused | None:
    """The first child to be made whose name an object of somebody else has, as a refusal.

    Server-side apply would take such an object over, so each name is read before it is first used.
    """
    for action in actions:
        if not isinstance(action, Apply) or action.exists:
            continue
        metadata = action.body["metadata"]
        try:
            found = await api.get(action.kind, metadata["namespace"], metadata["name"])
        except NotFoundError:
            continue
        if is_controlled_by(found, observation.uid):
            continue  # it was made after the list was read
        owners = found["metadata"].get("ownerReferences") or []
        leftover = any(owner.get("kind") == INFERENCE_DEPLOYMENT for owner in owners)
        return refuse_name(
            f"{action.kind.kind} {metadata['namespace']}/{metadata['name']}",
            retry_after_seconds=_RETRY_LEFTOVER_SECONDS if leftover else _RETRY_FOREIGN_SECONDS,
        )
    return None


async def execute(api: KubeApi, actions: Iterable[Action]) -> Refused | None:
    """Carry out the actions in their order; a refusal that no retry can mend is the answer.

    Raises any other ApiError at the first action that fails, ForbiddenError with the right that
    the operator lacks among them.
    """
    try:
        await _execute(api, actions)
    except InvalidError as error:
        return refuse_child(error, retry_after_seconds=None)
    except ForbiddenError as error:
        if error.right is not None:
            raise
        # A quota or an admission, which somebody may change.
        return refuse_child(error, retry_after_seconds=_RETRY_FORBIDDEN_SECONDS)
    return None


async def execute_optional(api: KubeApi, actions: Iterable[Action]) -> Hindrance | None:
    """Carry out actions that may fail without harm; what is in the way of one, if anything is.

    Raises ConflictError, NotFoundError and NotLeadingError: another look will help, or none.
    """
    for action in actions:
        try:
            await _execute(api, [action])
        except HINDRANCES as error:
            return hindrance_of(error, action.kind)
    return None


async def _execute(api: KubeApi, actions: Iterable[Action]) -> None:
    for action in actions:
        if isinstance(action, Apply):
            await api.apply(action.kind, action.body)
        elif isinstance(action, Scale):
            await api.scale(action.kind, action.child.body, action.replicas)
        else:
            child = action.child
            await api.delete(
                action.kind, action.namespace, child.name, child.uid, child.resource_version
            )
