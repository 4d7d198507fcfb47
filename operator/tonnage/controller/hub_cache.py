"""Cache of Hub models, read in the background so that no reconcile waits for a Hub.

`lookup` returns the cached model at once, or ModelPending while it is read. A few threads read, one
at a time per model, and requeue the objects that asked meanwhile. A commit never changes and is
read once. A branch or tag is read again when it is looked up an hour later; if that fails, the
cached model stays valid. A failed read is retried after a delay that doubles.
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
"""Most models in the cache; the least recently used one is evicted first."""

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_log: Final = logging.getLogger(__name__)

Fetch = Callable[[HuggingFaceSource, str | None], Checkpoint]
"""Reads a model and blocks. Raises ModelLookupError."""


@dataclass(frozen=True, slots=True)
class _ModelKey:
    """A model as one token may read it. The cache keeps only a digest of the token."""

    repo: str
    revision: str
    token_digest: str

    @classmethod
    def of(cls, source: HuggingFaceSource, token: str | None) -> "_ModelKey":
        digest = hashlib.sha256((token or "").encode()).hexdigest()
        return cls(source.repo, source.revision, digest)

    def __str__(self) -> str:
        return f"repository {self.repo} at revision {self.revision}"


@dataclass(frozen=True, slots=True)
class _CachedModel:
    """The last answer, when the next read is due (by the clock), and consecutive failures."""

    answer: Checkpoint | ModelUnavailable
    due: float
    failures: int = 0


class HubModelCache:
    """Caches models for one event loop; call every method in the loop's thread.

    `fetch` reads one model in a thread and may block. `clock` is a monotonic clock.
    """

    def __init__(self, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="tonnage-hub")
        self._entries: OrderedDict[_ModelKey, _CachedModel] = OrderedDict()
        self._waiting: dict[_ModelKey, list[Callable[[], None]]] = {}
        self._closed = False

    def lookup(
        self, source: HuggingFaceSource, token: str | None, wake: Callable[[], None]
    ) -> ModelAnswer:
        """Return the cached answer, and start a read if one is due. Never blocks.

        If a read is running, `wake` is called when it has ended.
        """
        key = _ModelKey.of(source, token)
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        if entry is None or entry.due <= self._clock():
            self._start_read(key, source, token)
        if key in self._waiting:
            self._waiting[key].append(wake)
        return self._answer(key, entry)

    def close(self) -> None:
        """Start no further reads, and call no `wake` any more.

        A running read ends by its own timeouts, and its result is dropped.
        """
        self._closed = True
        self._waiting.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answer(self, key: _ModelKey, entry: _CachedModel | None) -> ModelAnswer:
        if entry is None:
            return ModelPending(f"reading {key} from the Hub")
        if isinstance(entry.answer, Checkpoint):
            return entry.answer
        remaining = entry.due - self._clock()
        # While a retry runs, the last failure stays: a condition must not flap with retries.
        return replace(
            entry.answer,
            retry_after_seconds=remaining if remaining > 0 else delays.HUB_FIRST_RETRY,
        )

    def _start_read(self, key: _ModelKey, source: HuggingFaceSource, token: str | None) -> None:
        if self._closed or key in self._waiting:
            return
        self._waiting[key] = []
        loop = asyncio.get_running_loop()

        def finish(read: Future[Checkpoint]) -> None:
            # In a closed loop no task waits for the answer.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._finish_read, key, read)

        self._threads.submit(self._fetch, source, token).add_done_callback(finish)

    def _finish_read(self, key: _ModelKey, read: Future[Checkpoint]) -> None:
        if self._closed or read.cancelled():
            return
        self._entries[key] = self._record_read(key, read)
        self._entries.move_to_end(key)
        if len(self._entries) > CAPACITY:
            self._entries.popitem(last=False)
        for wake in self._waiting.pop(key):
            wake()

    def _record_read(self, key: _ModelKey, read: Future[Checkpoint]) -> _CachedModel:
        error = read.exception()
        if error is not None:
            return self._record_failure(key, _as_lookup_error(key, error))
        is_immutable = _COMMIT.fullmatch(key.revision) is not None
        return _CachedModel(
            read.result(), math.inf if is_immutable else self._clock() + delays.REFRESH_MODEL
        )

    def _record_failure(self, key: _ModelKey, error: ModelLookupError) -> _CachedModel:
        previous = self._entries.get(key)
        failures = previous.failures + 1 if previous else 1
        # The exponent is bounded: 2 to the power of some thousand failures is no float.
        delay = min(delays.HUB_FIRST_RETRY * 2 ** min(failures - 1, 16), delays.HUB_LAST_RETRY)
        delay = max(delay, error.retry_after_seconds or 0.0)
        _log.warning("%s; retrying in %.0f s", error.message, delay)
        due = self._clock() + delay
        if previous is not None and isinstance(previous.answer, Checkpoint):
            return replace(previous, due=due, failures=failures)
        return _CachedModel(ModelUnavailable(error.reason, error.message, delay), due, failures)


def _as_lookup_error(key: _ModelKey, error: BaseException) -> ModelLookupError:
    """Turn a bug into an answer, so that it does not stop the loop. The message has the error's
    type only: its text may quote foreign input."""
    if isinstance(error, ModelLookupError):
        return error
    return ModelLookupError(
        Reason.MODEL_SOURCE_UNREACHABLE,
        f"{key} could not be read: unexpected {type(error).__name__}; please report this defect",
    )
