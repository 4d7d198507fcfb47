"""Cache of models and adapters of a Hub, read in the background so that no reconcile waits for it.

`lookup` returns the cached model at once, or ModelPending while it is read. A few threads read, one
at a time per model, and requeue the objects that asked meanwhile. Namespaces take turns, and no
namespace has all threads: its many models, or a Hub that answers it slowly, delay no other one.

A commit never changes and is read once. A branch or tag is read again when it is looked up an hour
later; if that fails, the cached model stays valid. A failed read is retried after a delay that
doubles.
"""

import asyncio
import contextlib
import hashlib
import logging
import math
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.api.model import HuggingFaceSource
from tonnage.checkpoint.adapter import AdapterFacts
from tonnage.checkpoint.lookup import (
    AdapterAnswer,
    ModelAnswer,
    ModelLookupError,
    ModelPending,
    ModelUnavailable,
)
from tonnage.checkpoint.model import Checkpoint

WORKERS: Final = 4
"""Models and adapters that are read at once. Each read takes up to 128 MiB; together, they may take
half of the operator's memory limit."""

MOST_OF_ONE_NAMESPACE: Final = 2
"""Models and adapters of one namespace that are read at once."""

MOST_QUEUED: Final = 1024
"""Models and adapters of one namespace that wait to be read. An object may name 129, and a user
may name others faster than a Hub answers."""

_QUEUE_IS_FULL: Final = ModelUnavailable(
    Reason.MODEL_SOURCE_UNREACHABLE,
    f"{MOST_QUEUED} other models and adapters of this namespace wait to be read from the Hub",
    delays.HUB_FIRST_RETRY,
)

CAPACITY: Final = 1024
"""Most models and adapters in the cache; the least recently used one is evicted first."""

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_log: Final = logging.getLogger(__name__)

Fetch = Callable[[HuggingFaceSource, str | None], Checkpoint]
"""Reads a model and blocks. Raises ModelLookupError."""

FetchAdapter = Callable[[HuggingFaceSource, str | None], AdapterFacts]
"""Reads an adapter and blocks. Raises ModelLookupError."""

_Facts = Checkpoint | AdapterFacts


@dataclass(frozen=True, slots=True)
class _ModelKey:
    """A model, or an adapter, as one token may read it. The cache keeps only a digest of the
    token."""

    repo: str
    revision: str
    token_digest: str
    is_adapter: bool

    @classmethod
    def of(cls, source: HuggingFaceSource, token: str | None, is_adapter: bool) -> "_ModelKey":
        digest = hashlib.sha256((token or "").encode()).hexdigest()
        return cls(source.repo, source.revision, digest, is_adapter)

    def __str__(self) -> str:
        return f"repository {self.repo} at revision {self.revision}"


@dataclass(frozen=True, slots=True)
class _CachedModel:
    """The last answer, when the next read is due (by the clock), and consecutive failures."""

    answer: _Facts | ModelUnavailable
    due: float
    failures: int = 0


@dataclass(frozen=True, slots=True)
class _Read:
    key: _ModelKey
    source: HuggingFaceSource
    token: str | None


class _FairQueue:
    """The reads that are due, in turn by the namespaces that ask for them."""

    def __init__(self) -> None:
        self._by_namespace: OrderedDict[str, OrderedDict[_ModelKey, _Read]] = OrderedDict()
        self._running: Counter[str] = Counter()

    def add(self, namespace: str, read: _Read) -> bool:
        """Add a read; return False where the namespace has MOST_QUEUED others. The same one of
        another namespace is started by whose turn comes first."""
        reads = self._by_namespace.setdefault(namespace, OrderedDict())
        if read.key not in reads and len(reads) >= MOST_QUEUED:
            return False
        reads.setdefault(read.key, read)
        return True

    def start_next(self) -> tuple[str, _Read] | None:
        """Take the next read and its namespace; None where there is none, or no thread for it."""
        if self._running.total() >= WORKERS:
            return None
        for namespace, reads in self._by_namespace.items():
            if self._running[namespace] < MOST_OF_ONE_NAMESPACE:
                key, read = next(iter(reads.items()))
                self._by_namespace.move_to_end(namespace)
                self._remove(key)
                self._running[namespace] += 1
                return namespace, read
        return None

    def end(self, namespace: str) -> None:
        """Note that a read of the namespace has ended."""
        self._running[namespace] -= 1

    def clear(self) -> None:
        """Forget what has not started."""
        self._by_namespace.clear()

    def _remove(self, key: _ModelKey) -> None:
        for namespace, reads in list(self._by_namespace.items()):
            reads.pop(key, None)
            if not reads:
                del self._by_namespace[namespace]


class HubModelCache:
    """Caches models for one event loop; call every method in the loop's thread.

    `fetch` reads one model in a thread and may block, `fetch_adapter` one adapter; they share the
    threads. `clock` is a monotonic clock.
    """

    def __init__(
        self,
        fetch: Fetch,
        fetch_adapter: FetchAdapter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch, self._fetch_adapter = fetch, fetch_adapter
        self._clock = clock
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="tonnage-hub")
        self._entries: OrderedDict[_ModelKey, _CachedModel] = OrderedDict()
        self._waiting: dict[_ModelKey, dict[Callable[[], None], None]] = {}
        self._queue = _FairQueue()
        self._reading: set[_ModelKey] = set()
        self._closed = False

    def lookup(
        self,
        source: HuggingFaceSource,
        token: str | None,
        wake: Callable[[], None],
        namespace: str = "",
    ) -> ModelAnswer:
        """Return the cached answer to an object of the namespace, and have the model read if that
        is due. Never blocks.

        If a read is due or running, `wake` is called when it has ended, once for all lookups with
        an equal one: an object may be reconciled thousands of times while a Hub does not answer.
        """
        answer = self._lookup(_ModelKey.of(source, token, False), source, token, wake, namespace)
        assert not isinstance(answer, AdapterFacts), "the key is of a model"
        return answer

    def lookup_adapter(
        self,
        source: HuggingFaceSource,
        token: str | None,
        wake: Callable[[], None],
        namespace: str = "",
    ) -> AdapterAnswer:
        """Return the cached answer about an adapter, as `lookup` does about a model."""
        answer = self._lookup(_ModelKey.of(source, token, True), source, token, wake, namespace)
        assert not isinstance(answer, Checkpoint), "the key is of an adapter"
        return answer

    def _lookup(
        self,
        key: _ModelKey,
        source: HuggingFaceSource,
        token: str | None,
        wake: Callable[[], None],
        namespace: str,
    ) -> _Facts | ModelPending | ModelUnavailable:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        if entry is None or entry.due <= self._clock():
            self._queue_read(_Read(key, source, token), namespace)
        if key in self._waiting:
            self._waiting[key][wake] = None
        elif entry is None and not self._closed:
            return _QUEUE_IS_FULL
        return self._answer(key, entry)

    def close(self) -> None:
        """Start no further reads, and call no `wake` any more.

        A running read ends by its own timeouts, and its result is dropped.
        """
        self._closed = True
        self._waiting.clear()
        self._queue.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answer(
        self, key: _ModelKey, entry: _CachedModel | None
    ) -> _Facts | ModelPending | ModelUnavailable:
        if entry is None:
            return ModelPending(f"reading {key} from the Hub")
        if not isinstance(entry.answer, ModelUnavailable):
            return entry.answer
        remaining = entry.due - self._clock()
        # While a retry runs, the last failure stays: a condition must not flap with retries.
        return replace(
            entry.answer,
            retry_after_seconds=remaining if remaining > 0 else delays.HUB_FIRST_RETRY,
        )

    def _queue_read(self, read: _Read, namespace: str) -> None:
        if self._closed or read.key in self._reading:
            return
        if self._queue.add(namespace, read):
            self._waiting.setdefault(read.key, {})
            self._start_reads()

    def _start_reads(self) -> None:
        while (started := self._queue.start_next()) is not None:
            self._start_read(*started)

    def _start_read(self, namespace: str, read: _Read) -> None:
        self._reading.add(read.key)
        loop = asyncio.get_running_loop()

        def finish(result: Future[_Facts]) -> None:
            # In a closed loop no task waits for the answer.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._finish_read, namespace, read.key, result)

        self._threads.submit(self._read, read).add_done_callback(finish)

    def _read(self, read: _Read) -> _Facts:
        """Read in a thread. Blocks."""
        if read.key.is_adapter:
            return self._fetch_adapter(read.source, read.token)
        return self._fetch(read.source, read.token)

    def _finish_read(self, namespace: str, key: _ModelKey, read: Future[_Facts]) -> None:
        if self._closed or read.cancelled():
            return
        self._reading.discard(key)
        self._queue.end(namespace)
        self._start_reads()
        self._entries[key] = self._record_read(key, read)
        self._entries.move_to_end(key)
        if len(self._entries) > CAPACITY:
            self._entries.popitem(last=False)
        for wake in self._waiting.pop(key):
            wake()

    def _record_read(self, key: _ModelKey, read: Future[_Facts]) -> _CachedModel:
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
        if previous is not None and not isinstance(previous.answer, ModelUnavailable):
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
