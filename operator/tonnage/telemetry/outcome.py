"""What can become of a question to Prometheus."""

from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    """The words of logs and metrics; those of one question, not of Prometheus for ever."""

    ANSWERED = "answered"
    QUERY_REFUSED = "query_refused"
    TOO_LARGE = "too_large"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    FILE_UNREADABLE = "file_unreadable"
    TIMEOUT = "timeout"
    UNAUTHORIZED = "unauthorized"
    REDIRECTED = "redirected"
    HTTP_ERROR = "http_error"
    NOT_UNDERSTOOD = "not_understood"
    HELD_BACK = "held_back"

    @property
    def speaks_for_all(self) -> bool:
        """Whether other questions would end so too; else this one alone is at fault."""
        return self not in _OF_THE_QUESTION


_OF_THE_QUESTION: Final = frozenset({Outcome.QUERY_REFUSED, Outcome.TOO_LARGE, Outcome.HELD_BACK})


class UnansweredError(Exception):
    """A question has no answer. The message is in our own words: nothing of what came is quoted,
    since a server may repeat the credentials that it was given."""

    def __init__(self, outcome: Outcome, told: str) -> None:
        super().__init__(told)
        self.outcome = outcome
