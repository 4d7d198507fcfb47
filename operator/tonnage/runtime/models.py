"""Facts of Hub models in memory, read in the background so that no reconcile ever waits for a Hub.

`lookup` answers at once: with what is known, or that it is being read. A read runs in one of a few
threads, one at a time for each model, and wakes whoever asked meanwhile. A commit never changes and
is read once. A branch or tag is read again when it is asked for an hour later; when that fails,
what was known stands. A failure is tried again after a delay that doubles.
"""

import asyncio
import contextlib
import hashlib
import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.api.inference import HuggingFaceSource
from tonnage.checkpoint.lookup import (
    ModelAnswer,
    ModelLookupError,
    ModelPending,
    ModelUnavailable,
)
from tonnage.checkpoint.model import Checkpoint

WORKERS: Final = 2
CAPACITY: Final = 1024
"""Most models remembered; the one asked for longest ago is forgotten first."""

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_log: Final = logging.getLogger(__name__)

Fetch = Callable[[HuggingFaceSource, str | None], Checkpoint]
"""Reads a model, blocking. Raises ModelLookupError."""


@dataclass(frozen=True, slots=True)
class _Key:
    """Answers differ by token: what one may read, another may not. Only its digest is kept."""

    repo: str
    revision: str
    token_digest: str

    @classmethod
    def of(cls, source: HuggingFaceSource, token: str | None) -> "_Key":
        digest = hashlib.sha256((token or "").encode()).hexdigest()
        return cls(source.repo, source.revision, digest)

    def __str__(self) -> str:
        return f"repository {self.repo} at revision {self.revision}"


@dataclass(frozen=True, slots=True)
class _Entry:
    """The last answer, when the next read is due (clock reading), and failures in a row."""

    answer: Checkpoint | ModelUnavailable
    due: float
    failures: int = 0


class HubLookup:
    """A ModelHub for one event loop; every method is called in the loop's thread.

    `fetch` reads one model and may block; it runs in a thread. `now` is a monotonic clock.
    """

    def __init__(self, fetch: Fetch, now: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._now = now
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="tonnage-hub")
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._waiting: dict[_Key, list[Callable[[], None]]] = {}
        self._closed = False

    def lookup(
        self, source: HuggingFaceSource, token: str | None, wake: Callable[[], None]
    ) -> ModelAnswer:
        """Return what is known, and start a read when one is due. Never blocks."""
        key = _Key.of(source, token)
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        if entry is None or entry.due <= self._now():
            self._start_read(key, source, token)
        if key in self._waiting:
            self._waiting[key].append(wake)
        return self._answer(key, entry)

    def close(self) -> None:
        """Start no further reads and wake nobody any more.

        A read under way ends by its own timeouts; its result is dropped.
        """
        self._closed = True
        self._waiting.clear()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _answer(self, key: _Key, entry: _Entry | None) -> ModelAnswer:
        if entry is None:
            return ModelPending(f"reading {key} from the Hub")
        if isinstance(entry.answer, Checkpoint):
            return entry.answer
        remaining = entry.due - self._now()
        # While a retry runs, the refusal before it stands: a condition must not flap with retries.
        return replace(
            entry.answer,
            retry_after_seconds=remaining if remaining > 0 else delays.HUB_FIRST_RETRY,
        )

    def _start_read(self, key: _Key, source: HuggingFaceSource, token: str | None) -> None:
        if self._closed or key in self._waiting:
            return
        self._waiting[key] = []
        loop = asyncio.get_running_loop()

        def hand_over(read: Future[Checkpoint]) -> None:
            # A loop that is closed already has nobody left who waits for the answer.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._finish_read, key, read)

        self._workers.submit(self._fetch, source, token).add_done_callback(hand_over)

    def _finish_read(self, key: _Key, read: Future[Checkpoint]) -> None:
        if self._closed or read.cancelled():
            return
        self._entries[key] = self._judge(key, read)
        self._entries.move_to_end(key)
        if len(self._entries) > CAPACITY:
            self._entries.popitem(last=False)
        for wake in self._waiting.pop(key):
            wake()

    def _judge(self, key: _Key, read: Future[Checkpoint]) -> _Entry:
        error = read.exception()
        if error is not None:
            return self._keep_or_refuse(key, _explain(key, error))
        for_ever = _COMMIT.fullmatch(key.revision) is not None
        return _Entry(read.result(), math.inf if for_ever else self._now() + delays.REFRESH_MODEL)

    def _keep_or_refuse(self, key: _Key, error: ModelLookupError) -> _Entry:
        previous = self._entries.get(key)
        failures = previous.failures + 1 if previous else 1
        # The exponent is bounded: 2 to the power of some thousand failures is no float.
        delay = min(delays.HUB_FIRST_RETRY * 2 ** min(failures - 1, 16), delays.HUB_LAST_RETRY)
        delay = max(delay, error.retry_after_seconds or 0.0)
        _log.warning("%s; next try in %.0f s", error.message, delay)
        due = self._now() + delay
        if previous is not None and isinstance(previous.answer, Checkpoint):
            return replace(previous, due=due, failures=failures)
        return _Entry(ModelUnavailable(error.reason, error.message, delay), due, failures)


def _explain(key: _Key, error: BaseException) -> ModelLookupError:
    """A defect of ours must not stop the loop; its kind is told, its text may be foreign."""
    if isinstance(error, ModelLookupError):
        return error
    return ModelLookupError(
        Reason.MODEL_SOURCE_UNREACHABLE,
        f"{key} could not be read: unexpected {type(error).__name__}; please report this defect",
    )
