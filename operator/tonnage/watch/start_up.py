"""Waiting, at the start, for what the operator cannot do without."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    wait_random_exponential,
)

from tonnage.kube.protocol import ApiError, NotLeadingError

_log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS: Final = 15.0


async def until_it_works(what: str, job: Callable[[], Awaitable[object]]) -> None:
    """Do the job until the API server lets it succeed: a missing definition, role or network.

    Raises NotLeadingError: nothing that this process does will make it lead again.
    """

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        _log.warning("waiting: %s", what, extra={"error": str(error)})

    retrying = AsyncRetrying(
        wait=wait_random_exponential(multiplier=1, max=LONGEST_WAIT_SECONDS),
        retry=_is_worth_waiting,
        before_sleep=tell,
        reraise=True,
    )
    await retrying(job)


def _is_worth_waiting(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome else None
    return isinstance(error, ApiError) and not isinstance(error, NotLeadingError)
