"""A child of a kind that a cluster may lack, or that the operator may have no right to touch.

Nothing that goes wrong with such a child keeps the replicas from being served: it is a finding to
be told, never an error of the reconcile.
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
from tonnage.reconcile.children import Child, is_controlled_by, read_child
from tonnage.reconcile.key import Key

TOLERATED: Final = (ForbiddenError, InvalidError, KindMissingError, TransientError)
"""What is told and not raised. A conflict is raised, for it says that another look will help."""


@dataclass(frozen=True, slots=True)
class OptionalChildError:
    """Why the child cannot be read or written; `passing` when that may end by itself soon."""

    reason: Reason
    message: str
    passing: bool = False


async def read_optional_child(
    api: ObjectReader, kind: Kind, key: Key, name: str, uid: str
) -> Child | OptionalChildError | None:
    """The child of this name that the object with this uid controls, or why it cannot be told;
    None where there is none."""
    try:
        found = await api.get(kind, key.namespace, name)
    except TOLERATED as error:
        return describe_error(error, kind)
    except NotFoundError:
        return None
    if is_controlled_by(found, uid):
        return read_child(found)
    told = (
        f"{kind.kind} {key.namespace}/{name} exists and is not controlled by this"
        " InferenceDeployment; it is left alone. Delete or rename it, or ask for none"
    )
    owners = found["metadata"].get("ownerReferences") or []
    # The garbage collector is about to remove what a deleted object of the same name had.
    leftover = any(owner.get("kind") == INFERENCE_DEPLOYMENT for owner in owners)
    return OptionalChildError(Reason.NAME_CONFLICT, told, passing=leftover)


def describe_error(error: ApiError, kind: Kind) -> OptionalChildError:
    """What one of `TOLERATED` means, and what to do about it."""
    resource = f"{kind.plural}.{kind.group}"
    match error:
        case ForbiddenError(right=Right() as right):
            told = f"the operator may not {right}; {right.remedy}"
            return OptionalChildError(Reason.FORBIDDEN, told)
        case ForbiddenError():
            return OptionalChildError(Reason.FORBIDDEN, f"the API server forbids it: {error}")
        case KindMissingError():
            told = f"the cluster knows no {resource} of version {kind.version}; install its CRD"
            return OptionalChildError(Reason.KIND_MISSING, told)
        case TransientError():
            return OptionalChildError(Reason.UNREACHABLE, str(error), passing=True)
        case _:
            return OptionalChildError(Reason.CHILD_REFUSED, f"the API server refuses it: {error}")
