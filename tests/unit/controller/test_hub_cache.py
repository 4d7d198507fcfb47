"""The cache of Hub models: which reads repeat and when, and that no lookup waits."""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from tests.support.foreign.tiny_model import CONFIG, source
from tonnage.api.conditions import Reason
from tonnage.api.model import HuggingFaceSource
from tonnage.checkpoint.adapter import AdapterFacts
from tonnage.checkpoint.lookup import ModelAnswer, ModelLookupError, ModelPending, ModelUnavailable
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.shape import parse_config_text
from tonnage.controller.hub_cache import (
    CAPACITY,
    MOST_OF_ONE_NAMESPACE,
    MOST_QUEUED,
    WORKERS,
    HubModelCache,
)
from tonnage.reconcile.key import Key, Wake

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = Checkpoint(parse_config_text(CONFIG.start), weights_bytes=1, revision=COMMIT)
NEWER = replace(MODEL, weights_bytes=2)
MISSING = ModelLookupError(Reason.MODEL_NOT_FOUND, "no such repository")


@dataclass
class Hub:
    """Gives the outcomes in turn, the last one for ever; no read ends before `released` is set, or
    what `gates` has for its revision."""

    outcomes: list[Checkpoint | BaseException]
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    started: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def fetch(self, wanted: HuggingFaceSource, token: str | None) -> Checkpoint:
        self.requests.append((wanted.repo, wanted.revision, token))
        self.started.release()
        assert self.gates.get(wanted.revision, self.released).wait(60)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def fetch_adapter(self, wanted: HuggingFaceSource, token: str | None) -> AdapterFacts:
        self.requests.append((wanted.repo, wanted.revision, token))
        return AdapterFacts(rank=8)


@dataclass
class Bench:
    """A cache with its Hub and clock."""

    hub: Hub
    lookup: HubModelCache
    now: list[float]

    def ask(
        self,
        revision: str = "main",
        token: str | None = None,
        wake: Callable[[], None] = int,
        namespace: str = "",
    ) -> ModelAnswer:
        return self.lookup.lookup(source(revision=revision), token, wake, namespace)

    async def settle(self, revision: str = "main", token: str | None = None) -> ModelAnswer:
        """Look the model up, wait until the read has ended, and return the answer."""
        self.hub.released.set()
        woken = asyncio.Event()
        self.ask(revision, token, woken.set)
        await asyncio.wait_for(woken.wait(), 60)
        return self.ask(revision, token)


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench() -> Iterator[MakeBench]:
    benches: list[Bench] = []

    def make(*outcomes: Checkpoint | BaseException) -> Bench:
        hub, now = Hub(list(outcomes)), [1000.0]
        benches.append(Bench(hub, HubModelCache(hub.fetch, hub.fetch_adapter, lambda: now[0]), now))
        return benches[-1]

    yield make
    for bench in benches:
        bench.hub.released.set()
        bench.lookup.close()


async def test_the_first_lookup_returns_before_the_read_ends(make_bench: MakeBench) -> None:
    bench = make_bench(MODEL)
    answer = bench.ask()  # the Hub has not answered yet
    assert answer == ModelPending("reading repository acme/tiny at revision main from the Hub")
    assert await bench.settle() == MODEL


async def test_one_read_answers_all_lookups_and_wakes_each_once(
    make_bench: MakeBench,
) -> None:
    bench, woken = make_bench(MODEL), []
    for name in "abc":
        bench.ask(wake=partial(woken.append, name))
    assert await bench.settle() == MODEL
    assert woken == ["a", "b", "c"]
    assert len(bench.hub.requests) == 1
    bench.ask(wake=lambda: woken.append("late"))
    await asyncio.sleep(0)
    assert woken == ["a", "b", "c"]


async def test_an_object_that_asks_again_waits_once(make_bench: MakeBench) -> None:
    bench, woken = make_bench(MODEL), list[Key]()
    for _ in range(100):
        bench.ask(wake=Wake(woken.append, Key("chat", "llama")))
    assert await bench.settle() == MODEL
    assert woken == [Key("chat", "llama")]


async def test_a_branch_is_read_again_after_an_hour_and_stays_cached_meanwhile(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(MODEL, NEWER)
    assert await bench.settle() == MODEL
    bench.now[0] += 3599
    assert bench.ask() == MODEL
    assert len(bench.hub.requests) == 1
    bench.now[0] += 1
    bench.hub.released.clear()
    assert bench.ask() == MODEL
    assert await bench.settle() == NEWER


async def test_a_commit_is_read_once(make_bench: MakeBench) -> None:
    bench = make_bench(MODEL)
    await bench.settle(COMMIT)
    bench.now[0] += 10**9
    assert bench.ask(COMMIT) == MODEL
    assert len(bench.hub.requests) == 1


async def test_the_cached_model_stays_when_a_refresh_fails(
    make_bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench(MODEL, MISSING, NEWER)
    await bench.settle()
    bench.now[0] += 3600
    assert await bench.settle() == MODEL
    assert "no such repository; retrying in 30 s" in caplog.text
    bench.now[0] += 29
    bench.ask()
    assert len(bench.hub.requests) == 2
    bench.now[0] += 1
    assert await bench.settle() == NEWER


async def test_a_failure_is_retried_with_backoff(make_bench: MakeBench) -> None:
    bench = make_bench(MISSING)
    delays = []
    for _ in range(7):
        answer = await bench.settle()
        assert isinstance(answer, ModelUnavailable)
        assert (answer.reason, answer.message) == (Reason.MODEL_NOT_FOUND, "no such repository")
        assert answer.retry_after_seconds is not None
        delays.append(answer.retry_after_seconds)
        bench.now[0] += answer.retry_after_seconds
    assert delays == [30, 60, 120, 240, 480, 600, 600]
    assert len(bench.hub.requests) == 7


async def test_a_failure_does_not_flap_while_it_is_retried(make_bench: MakeBench) -> None:
    bench = make_bench(MISSING, MODEL)
    await bench.settle()
    bench.now[0] += 10
    early = bench.ask()
    assert early == ModelUnavailable(Reason.MODEL_NOT_FOUND, "no such repository", 20.0)
    bench.now[0] += 20
    bench.hub.released.clear()
    assert bench.ask() == ModelUnavailable(Reason.MODEL_NOT_FOUND, "no such repository", 30.0)
    assert await bench.settle() == MODEL


async def test_the_servers_retry_after_is_respected(make_bench: MakeBench) -> None:
    slow_down = ModelLookupError(Reason.MODEL_SOURCE_UNREACHABLE, "429", 900.0)
    answer = await make_bench(slow_down).settle()
    assert answer == ModelUnavailable(Reason.MODEL_SOURCE_UNREACHABLE, "429", 900.0)


async def test_a_new_token_or_revision_is_read_separately(make_bench: MakeBench) -> None:
    bench = make_bench(MISSING, MODEL, NEWER)
    assert isinstance(await bench.settle(), ModelUnavailable)
    assert await bench.settle(token="hf_right") == MODEL
    assert await bench.settle(revision="v2", token="hf_right") == NEWER
    assert isinstance(bench.ask(), ModelUnavailable)
    assert bench.hub.requests == [
        ("acme/tiny", "main", None),
        ("acme/tiny", "main", "hf_right"),
        ("acme/tiny", "v2", "hf_right"),
    ]


async def test_a_bug_is_an_answer_too(make_bench: MakeBench) -> None:
    answer = await make_bench(ZeroDivisionError("hf_secret")).settle()
    assert isinstance(answer, ModelUnavailable)
    assert answer.reason is Reason.MODEL_SOURCE_UNREACHABLE
    assert "unexpected ZeroDivisionError" in answer.message
    assert "hf_secret" not in answer.message


async def await_reads(bench: Bench, number: int) -> None:
    for _ in range(number):
        assert await asyncio.to_thread(bench.hub.started.acquire, timeout=60)


async def test_some_models_are_read_at_once(make_bench: MakeBench) -> None:
    bench = make_bench(MODEL)
    for number in range(3 * WORKERS):
        bench.ask(revision=f"v{number}", namespace=str(number))
    await await_reads(bench, WORKERS)
    assert len(bench.hub.requests) == WORKERS
    await bench.settle(f"v{3 * WORKERS - 1}")
    await await_reads(bench, 2 * WORKERS)
    assert len(bench.hub.requests) == 3 * WORKERS


async def test_the_many_models_of_a_namespace_delay_no_other(make_bench: MakeBench) -> None:
    bench = make_bench(MODEL)
    for number in range(3 * WORKERS):
        bench.ask(revision=f"v{number}", namespace="greedy")
    await await_reads(bench, MOST_OF_ONE_NAMESPACE)
    bench.ask(revision="theirs", namespace="chat")
    await await_reads(bench, 1)
    assert [revision for _, revision, _ in bench.hub.requests][-1] == "theirs"
    assert len(bench.hub.requests) == MOST_OF_ONE_NAMESPACE + 1


async def test_a_namespace_queues_a_bounded_number_of_reads(make_bench: MakeBench) -> None:
    """A user may name 128 further adapters with each patch of an object."""
    bench = make_bench(MODEL)
    for number in range(MOST_OF_ONE_NAMESPACE + MOST_QUEUED):
        assert isinstance(bench.ask(revision=str(number), namespace="greedy"), ModelPending)
    last = bench.ask(revision="last", namespace="greedy")
    assert isinstance(last, ModelUnavailable)
    assert (last.reason, last.retry_after_seconds) == ("ModelSourceUnreachable", 30.0)
    assert "1024 other models and adapters of this namespace wait" in last.message
    assert isinstance(bench.ask(revision="2", namespace="greedy"), ModelPending)
    other, last_queued = asyncio.Event(), asyncio.Event()
    assert isinstance(bench.ask("last", wake=other.set, namespace="other"), ModelPending)
    newest = str(MOST_OF_ONE_NAMESPACE + MOST_QUEUED - 1)
    bench.ask(newest, wake=last_queued.set, namespace="greedy")
    bench.hub.released.set()
    await asyncio.wait_for(other.wait(), 60)
    await asyncio.wait_for(last_queued.wait(), 60)
    assert isinstance(bench.ask("afterwards", namespace="greedy"), ModelPending)


async def test_namespaces_take_turns(make_bench: MakeBench) -> None:
    bench = make_bench(MODEL)
    for namespace in ("greedy", "others"):
        for number in range(MOST_OF_ONE_NAMESPACE):
            revision = f"{namespace}-{number}"
            bench.hub.gates[revision] = threading.Event()
            bench.ask(revision=revision, namespace=namespace)
    await await_reads(bench, WORKERS)
    for number in range(WORKERS):
        bench.ask(revision=f"later-{number}", namespace="greedy")
    last = f"later-{WORKERS - 1}"
    bench.ask(revision="theirs", namespace="chat")
    bench.ask(revision=last, namespace="search")
    gates = list(bench.hub.gates.values())
    for gate in gates[:3]:  # one after the other: the threads begin what is started in any order
        gate.set()
        await await_reads(bench, 1)
    queued = [revision for _, revision, _ in bench.hub.requests][WORKERS:]
    assert queued == ["later-0", "theirs", last]
    gates[3].set()
    await bench.settle(last)
    await await_reads(bench, WORKERS - 2)
    queued = [revision for _, revision, _ in bench.hub.requests][WORKERS:]
    assert len(queued) == WORKERS + 1, "a model that two namespaces ask for is read once"


async def test_the_least_recently_used_model_is_evicted(make_bench: MakeBench) -> None:
    bench = make_bench(MODEL)
    for number in range(CAPACITY):
        await bench.settle(f"v{number}")
    bench.ask("v0")
    await bench.settle("one-more")
    assert bench.ask("v0") == MODEL
    assert isinstance(bench.ask("v1"), ModelPending)


async def test_a_token_is_not_stored(make_bench: MakeBench) -> None:
    bench = make_bench(MODEL)
    token = "hf_" + "k" * 20
    await bench.settle(token=token)
    bench.hub.requests.clear()
    gc.collect()
    assert token not in repr(vars(bench.lookup))


async def test_after_close_no_wake_is_called_and_nothing_is_read(
    make_bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench, woken = make_bench(MODEL), []
    bench.ask(wake=lambda: woken.append(1))
    assert await asyncio.to_thread(bench.hub.started.acquire, timeout=60)
    bench.ask(revision="queued", wake=lambda: woken.append(2))
    bench.lookup.close()
    bench.hub.released.set()
    assert isinstance(bench.ask(revision="later"), ModelPending)
    for thread in threading.enumerate():
        if thread.name.startswith("tonnage-hub"):
            await asyncio.to_thread(thread.join, 60)
    await asyncio.sleep(0)
    assert woken == []
    assert "later" not in str(bench.hub.requests)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_read_that_outlives_the_loop_logs_nothing(
    make_bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench(MODEL)

    async def ask_and_leave() -> None:
        bench.ask()
        await asyncio.to_thread(bench.hub.started.acquire, timeout=60)

    asyncio.run(ask_and_leave())
    bench.hub.released.set()
    for thread in threading.enumerate():
        if thread.name.startswith("tonnage-hub"):
            bench.lookup.close()
            thread.join(60)
    assert caplog.records == []
