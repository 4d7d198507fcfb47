"""The non-blocking lookup of models and adapters on a Hub, and its results."""

from collections.abc import Callable
from dataclasses import dataclass

from tonnage.api.conditions import Reason
from tonnage.api.model import HuggingFaceSource
from tonnage.checkpoint.adapter import AdapterFacts
from tonnage.checkpoint.model import Checkpoint


@dataclass(frozen=True, slots=True)
class ModelPending:
    """A read is in progress; the caller's `wake` runs when it ends."""

    message: str


@dataclass(frozen=True, slots=True)
class ModelUnavailable:
    """The facts are not available: `reason` and `message` go into the Accepted condition.

    A lookup after `retry_after_seconds` may succeed; None if only a change of the source helps.
    """

    reason: Reason
    message: str
    retry_after_seconds: float | None


ModelAnswer = Checkpoint | ModelPending | ModelUnavailable
AdapterAnswer = AdapterFacts | ModelPending | ModelUnavailable


@dataclass(frozen=True, slots=True)
class HubLookup:
    """Look up a source with a token on the Hub without waiting; return what is known now."""

    model: Callable[[HuggingFaceSource, str | None], ModelAnswer]
    adapter: Callable[[HuggingFaceSource, str | None], AdapterAnswer]


class ModelLookupError(Exception):
    """A read of a repository failed; `message` names the repository, the cause and what to do.

    `retry_after_seconds` is the delay that the server asks for, None without one.
    """

    def __init__(
        self, reason: Reason, message: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
