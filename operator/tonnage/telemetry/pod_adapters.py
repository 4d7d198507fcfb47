"""LoRA adapters of running pods: what /v1/models lists, and calls that load and unload them.

A pod runs a user's image, so its answers are untrusted: each has a deadline and a size limit,
redirects are not followed, an invalid answer counts as none, and no text of it goes further. A pod
gets calls only after it has answered as a server of the expected model.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import aiohttp

from tonnage import delays
from tonnage.engines.registry import engine_named
from tonnage.telemetry.pod_http import FAILURES, OK, fetch_page, open_session
from tonnage.telemetry.pods import ServingPod
from tonnage.telemetry.served_adapters import (
    AdapterCall,
    PodCalls,
    ServedAdapters,
    read_models,
)

MAX_BYTES: Final = 1024 * 1024
"""The largest list of models read; an entry has half a KiB."""

TASK_NAME: Final = "tonnage-pod-adapters"

_MAX_CONCURRENT_READS: Final = 8
_MAX_CONCURRENT_UPDATES: Final = 64
"""For all objects together. A pod that is being updated may take minutes, and delays no list of
another one."""

_MAX_PODS: Final = 16
"""The pods asked per call of `read`; later calls ask the others."""

_MAX_STARTS: Final = 4096
"""Container starts in the cache; the least recently asked one is evicted first."""

_MISSING: Final = 404
_REFUSED: Final = (401, 403)
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class _Start:
    """A start of a container: its last answer, when it may be asked again, and when it may get
    calls again, by the clock: the same ones after `call_due`, others after `pause_due`. `calls` are
    the last ones, `failures` how often some failed in a row; `busy`: a task works on it."""

    answer: ServedAdapters | None = None
    read_due: float = 0.0
    call_due: float = 0.0
    pause_due: float = 0.0
    calls: frozenset[AdapterCall] = frozenset()
    failures: int = 0
    busy: bool = False


class PodAdapters:
    """Reads and changes the adapters of pods in the background; no caller waits for an answer, and
    `wake` is called once there is a new one.

    `may_call`: whether this process may change pods now, as one that holds the Lease.
    """

    def __init__(
        self,
        may_call: Callable[[], bool] = lambda: True,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._may_call, self._clock = may_call, clock
        self._starts: OrderedDict[str, _Start] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reads = asyncio.Semaphore(_MAX_CONCURRENT_READS)
        self._updates = asyncio.Semaphore(_MAX_CONCURRENT_UPDATES)

    def read(
        self,
        pods: Sequence[ServingPod],
        model: str,
        refresh: float,
        wake: Callable[[], None],
    ) -> Mapping[str, ServedAdapters]:
        """The last answers of the pods, by pod, and ask those without one, or with one older than
        `refresh` seconds; infinite for pods whose adapters do not change. A pod that was not asked
        yet is missing."""
        now = self._clock()
        due = [pod for pod in pods if pod.address is not None and self._is_due(pod, now)]
        for pod in due[:_MAX_PODS]:
            self._work(pod, self._read(pod, model, refresh, wake))
        starts = ((pod.name, self._starts.get(pod.start)) for pod in pods)
        return {name: start.answer for name, start in starts if start and start.answer}

    def update(self, changes: Iterable[PodCalls], wake: Callable[[], None]) -> None:
        """Start the calls, but to pods that have calls under way, or where the same calls failed a
        short time ago: a spec that was corrected does not wait."""
        for change in changes:
            start = self._starts.get(change.pod.start)
            if start is None or start.busy:
                continue
            due = start.call_due if start.calls.issuperset(change.calls) else start.pause_due
            if due > self._clock():
                continue
            self._work(change.pod, self._update(change, wake))

    def _is_due(self, pod: ServingPod, now: float) -> bool:
        start = self._starts.get(pod.start)
        return start is None or (not start.busy and start.read_due <= now)

    def _work(self, pod: ServingPod, work: Coroutine[Any, Any, None]) -> None:
        self._remember(pod, replace(self._starts.get(pod.start, _Start()), busy=True))
        task = asyncio.create_task(work, name=TASK_NAME)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(
        self, pod: ServingPod, model: str, refresh: float, wake: Callable[[], None]
    ) -> None:
        async with self._reads, open_session() as session:
            answer = await _read_models(session, pod, model)
        start = self._starts.get(pod.start, _Start())
        before = start.answer
        if before is not None:
            answer = replace(answer, failed=before.failed)
        wait = refresh
        if answer.adapters is None:
            # What a pod starts with is known without its answer.
            starts_with_them = refresh == math.inf
            wait = delays.POD_METRICS_RETRY if starts_with_them else delays.ADAPTER_FIRST_RETRY
        self._remember(
            pod, replace(start, answer=answer, read_due=self._clock() + wait, busy=False)
        )
        if answer != before:
            wake()

    async def _update(self, change: PodCalls, wake: Callable[[], None]) -> None:
        pod = change.pod
        before = self._starts.get(pod.start, _Start())
        async with self._updates, open_session() as session:
            # Another server may have this address since the last answer.
            answer = await self._ask(session, pod, change.model)
            failed: dict[str, str] = {}
            if answer.adapters is not None:
                failed = await self._call_all(session, change, before.answer)
                answer = await self._ask(session, pod, change.model)
        failures = before.failures + 1 if failed or answer.adapters is None else 0
        delay = delays.ADAPTER_PAUSE
        if failures:
            delay = delays.ADAPTER_FIRST_RETRY * 2 ** min(failures - 1, 16)
        now = self._clock()
        is_silent = answer.adapters is None
        wait = delays.ADAPTER_FIRST_RETRY if is_silent else delays.ADAPTER_REFRESH
        done = _Start(
            replace(answer, failed=failed),
            read_due=now + wait,
            call_due=now + min(delay, delays.ADAPTER_LAST_RETRY),
            pause_due=now + delays.ADAPTER_PAUSE,
            calls=frozenset(change.calls),
            failures=failures,
        )
        self._remember(pod, done)
        wake()

    async def _call_all(
        self, session: aiohttp.ClientSession, change: PodCalls, before: ServedAdapters | None
    ) -> dict[str, str]:
        """Make the calls in their order, but load last what could not be loaded before; return why
        some failed.

        After a call without an answer there are no others: each could take as long.
        """
        failed: dict[str, str] = {}
        again = before.failed if before is not None else {}
        for call in sorted(change.calls, key=lambda one: bool(one.source) and one.name in again):
            if not self._may_call():
                break
            status = await _call(session, change.pod, call)
            if status != OK:
                failed[call.name] = _explain_call(change.pod, call, status)
            if status is None:
                break
        return failed

    async def _ask(
        self, session: aiohttp.ClientSession, pod: ServingPod, model: str
    ) -> ServedAdapters:
        async with self._reads:
            return await _read_models(session, pod, model)

    def _remember(self, pod: ServingPod, start: _Start) -> None:
        self._starts[pod.start] = start
        self._starts.move_to_end(pod.start)
        while len(self._starts) > _MAX_STARTS:
            self._starts.popitem(last=False)


async def _read_models(
    session: aiohttp.ClientSession, pod: ServingPod, model: str
) -> ServedAdapters:
    """Ask for the list. Never raises."""
    url = f"http://{pod.address}/v1/models"
    page = await fetch_page(session, url, _JSON, delays.POD_MODELS, MAX_BYTES)
    if page is None:
        return ServedAdapters(None, "does not answer on /v1/models; a NetworkPolicy may be why")
    if page.status != OK:
        return ServedAdapters(None, _explain(page.status))
    if page.body is None:
        return ServedAdapters(None, "gives a list of models that is too long")
    return read_models(page.body, model)


async def _call(session: aiohttp.ClientSession, pod: ServingPod, call: AdapterCall) -> int | None:
    """The status of the answer, None without one in time. Never raises."""
    body, (path, seconds) = {"lora_name": call.name}, _endpoint(pod, call)
    if call.source is not None:
        body["lora_path"] = call.source
    try:
        async with session.post(
            f"http://{pod.address}{path}",
            json=body,
            allow_redirects=False,
            headers={"Accept": _JSON, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=seconds),
        ) as response:
            return response.status
    except FAILURES:
        return None


def _endpoint(pod: ServingPod, call: AdapterCall) -> tuple[str, float]:
    """The path that the call is made to, and in how many seconds it is answered."""
    paths = engine_named(pod.engine).adapter_paths
    if call.source is None:
        return paths.unload, delays.POD_MODELS
    return paths.load, delays.ADAPTER_LOAD


def _explain_call(pod: ServingPod, call: AdapterCall, status: int | None) -> str:
    if status is None:
        path, seconds = _endpoint(pod, call)
        return f"does not answer on {path} within {seconds:.0f} s"
    if status == _MISSING and call.source is not None:
        return f"answers 404: there are no files of an adapter at {call.source}"
    return _explain(status)


def _explain(status: int) -> str:
    if status in _REFUSED:
        return f"answers {status}: it asks for an API key, which the operator does not have"
    return f"answers {status}; the log of the pod says why"
