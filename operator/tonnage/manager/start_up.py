"""Waiting, at the start, for what the operator requires."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    wait_random_exponential,
)

from tonnage import delays
from tonnage.kube.protocol import (
    ApiError,
    Kind,
    KindMissingError,
    KubeApi,
    NotLeadingError,
    ObjectParts,
    Selection,
)

_log = logging.getLogger(__name__)


async def retry_until_success(
    what: str, job: Callable[[], Awaitable[object]], on_failure: Callable[[str, str], None]
) -> None:
    """Retry the job until it succeeds: a CRD, a role or the network may be missing.

    `on_failure` receives `what` and the error of each failed attempt.
    Raises NotLeadingError, because this process cannot lead again, and KindMissingError, because a
    CRD was deleted after its kind was found, and kopf may not watch it.
    """

    def report_failure(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        on_failure(what, str(error))
        _log.warning("waiting for %s", what, extra={"error": str(error)})

    retrying = AsyncRetrying(
        wait=wait_random_exponential(multiplier=1, max=delays.START_UP_RETRY),
        retry=_is_retryable,
        before_sleep=report_failure,
        reraise=True,
    )
    await retrying(job)


class MissingKindsError(ApiError):
    """The API server does not have the kinds that the operator requires."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        names = ", ".join(f"{kind.plural}.{kind.group} ({kind.kind})" for kind in kinds)
        super().__init__(
            f"the API server has no CustomResourceDefinition {names}; apply those of this version:"
            " `tonnage crds | kubectl apply --server-side -f -`, or install chart tonnage-crds"
        )


async def check_kinds(api: KubeApi, selections: Iterable[Selection]) -> None:
    """Check that the API server has the kinds of these selections, and lists their objects.

    Raises MissingKindsError, and other ApiErrors.
    """
    missing = []
    for selection in selections:
        try:
            await api.list_first(selection, ObjectParts.METADATA, 1)
        except KindMissingError:
            missing.append(selection.kind)
    if missing:
        raise MissingKindsError(missing)


def _is_retryable(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome else None
    is_permanent = isinstance(error, NotLeadingError | KindMissingError)
    return isinstance(error, ApiError) and not is_permanent
