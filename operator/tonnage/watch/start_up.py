"""Waiting, at the start, for what the operator cannot do without."""

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
    Selection,
)

_log = logging.getLogger(__name__)


async def until_it_works(
    what: str, job: Callable[[], Awaitable[object]], tell_why: Callable[[str, str], None]
) -> None:
    """Do the job until the API server lets it succeed: a missing definition, role or network.

    `tell_why` is told what is waited for, and the cause, after each try in vain.
    Raises NotLeadingError: nothing that this process does will make it lead again; and
    KindMissingError: a definition went after its kind was found, and kopf may not watch it.
    """

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        tell_why(what, str(error))
        _log.warning("waiting: %s", what, extra={"error": str(error)})

    retrying = AsyncRetrying(
        wait=wait_random_exponential(multiplier=1, max=delays.START_UP_RETRY),
        retry=_is_worth_waiting,
        before_sleep=tell,
        reraise=True,
    )
    await retrying(job)


class MissingKindsError(ApiError):
    """The API server does not know kinds that the operator cannot do without."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        names = ", ".join(f"{kind.plural}.{kind.group} ({kind.kind})" for kind in kinds)
        super().__init__(
            f"the API server has no CustomResourceDefinition {names}; apply those of this version:"
            " `tonnage crds | kubectl apply --server-side -f -`, or install chart tonnage-crds"
        )


async def find_kinds(api: KubeApi, selections: Iterable[Selection]) -> None:
    """Find out whether the cluster has the kinds of these selections.

    Raises MissingKindsError, and other ApiErrors.
    """
    missing = []
    for selection in selections:
        try:
            await api.probe(selection)
        except KindMissingError:
            missing.append(selection.kind)
    if missing:
        raise MissingKindsError(missing)


def _is_worth_waiting(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome else None
    hopeless = isinstance(error, NotLeadingError | KindMissingError)
    return isinstance(error, ApiError) and not hopeless
