"""The question "what is this Hub repository?" and its answers; asked without waiting."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tonnage.api.conditions import Reason
from tonnage.api.inference import HuggingFaceSource
from tonnage.checkpoint.model import Checkpoint


@dataclass(frozen=True, slots=True)
class ModelPending:
    """The facts are being read; who asked is woken when they are known."""

    message: str


@dataclass(frozen=True, slots=True)
class ModelUnavailable:
    """The facts cannot be had now: `reason` and `message` go into the Accepted condition.

    `retry_after_seconds` is when asking again may bring another answer, None when only a change of
    the source can.
    """

    reason: Reason
    message: str
    retry_after_seconds: float | None


ModelAnswer = Checkpoint | ModelPending | ModelUnavailable


class ModelLookupError(Exception):
    """Reading a repository failed; `message` names the repository, the cause and what to do.

    `retry_after_seconds` is the server's wish, None when it has none.
    """

    def __init__(
        self, reason: Reason, message: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class ModelHub(Protocol):
    """Knows models on a Hub."""

    def lookup(
        self, source: HuggingFaceSource, token: str | None, wake: Callable[[], None]
    ) -> ModelAnswer:
        """Return what is known now, without waiting.

        `token` is the value of the Secret that the source names, None without one. `wake` is called
        once when a read that is under way has ended.
        """
        ...
