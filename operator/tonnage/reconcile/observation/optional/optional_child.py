"""Read a child of a kind that a cluster may lack, or that the operator may have no right to use.

No error with such a child stops the replicas from serving: it is a finding to report, never an
error of the reconcile.
"""

from dataclasses import dataclass
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.api.names import INFERENCE_DEPLOYMENT
from tonnage.kube.protocol import (
    ApiError,
    ForbiddenError,
    InvalidError,
    Kind,
    KindMissingError,
    NotFoundError,
    ObjectReader,
    TransientError,
)
from tonnage.kube.rights import Right
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import Child, is_controlled_by, read_child

TOLERATED: Final = (ForbiddenError, InvalidError, KindMissingError, TransientError)
"""Errors that are reported and not raised. A conflict is raised, since a requeue resolves it."""


@dataclass(frozen=True, slots=True)
class OptionalChildError:
    """Why the child cannot be read or written; `passing` when that may end soon without action."""

    reason: Reason
    message: str
    passing: bool = False


async def read_optional_child(
    api: ObjectReader, kind: Kind, key: Key, name: str, uid: str
) -> Child | OptionalChildError | None:
    """The child of this name that the object with this uid controls, or why it cannot be read; None
    where there is none."""
    try:
        body = await api.get(kind, key.namespace, name)
    except TOLERATED as error:
        return describe_error(error, kind)
    except NotFoundError:
        return None
    if is_controlled_by(body, uid):
        return read_child(body)
    message = (
        f"{kind.kind} {key.namespace}/{name} exists and is not controlled by this"
        " InferenceDeployment; the operator leaves it alone. Delete or rename it, or do not"
        " request one"
    )
    owners = body["metadata"].get("ownerReferences") or []
    # The garbage collector is about to remove the child of a deleted object of the same name.
    leftover = any(owner.get("kind") == INFERENCE_DEPLOYMENT for owner in owners)
    return OptionalChildError(Reason.NAME_CONFLICT, message, passing=leftover)


def describe_error(error: ApiError, kind: Kind) -> OptionalChildError:
    """The meaning of one of `TOLERATED`, and its remedy."""
    resource = f"{kind.plural}.{kind.group}"
    match error:
        case ForbiddenError(right=Right() as right):
            message = f"the operator may not {right}; {right.remedy}"
            return OptionalChildError(Reason.FORBIDDEN, message)
        case ForbiddenError():
            return OptionalChildError(Reason.FORBIDDEN, f"the API server forbids it: {error}")
        case KindMissingError():
            message = f"the cluster has no {resource} of version {kind.version}; install its CRD"
            return OptionalChildError(Reason.KIND_MISSING, message)
        case TransientError():
            return OptionalChildError(Reason.UNREACHABLE, str(error), passing=True)
        case _:
            return OptionalChildError(Reason.CHILD_REFUSED, f"the API server refuses it: {error}")
