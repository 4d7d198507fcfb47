"""Errors with a child of a kind that a cluster may lack, or that the operator may not use.

No error with such a child stops the replicas from serving: it is a finding to report, never an
error of the reconcile.
"""

from dataclasses import dataclass
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.kube.protocol import (
    ApiError,
    ForbiddenError,
    InvalidError,
    Kind,
    KindMissingError,
    TransientError,
)
from tonnage.kube.rights import Right

TOLERATED: Final = (ForbiddenError, InvalidError, KindMissingError, TransientError)
"""Errors that are reported and not raised. A conflict is raised, since a requeue resolves it."""


@dataclass(frozen=True, slots=True)
class OptionalChildError:
    """Why the child cannot be read or written; `passing` when that may end soon without action."""

    reason: Reason
    message: str
    passing: bool = False


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
