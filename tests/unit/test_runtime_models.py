"""Hub models in memory: what is asked once, what again and when, and that nobody waits."""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from tests.support.tiny_model import CONFIG, source
from tonnage.api.conditions import Reason
from tonnage.api.inference import HuggingFaceSource
from tonnage.checkpoint.config import parse_config_text
from tonnage.checkpoint.lookup import ModelAnswer, ModelLookupError, ModelPending, ModelUnavailable
from tonnage.checkpoint.model import Checkpoint
from tonnage.runtime.models import CAPACITY, WORKERS, HubLookup

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = Checkpoint(parse_config_text(CONFIG.start), weights_bytes=1, revision=COMMIT)
NEWER = replace(MODEL, weights_bytes=2)
MISSING = ModelLookupError(Reason.MODEL_NOT_FOUND, "no such repository")


@dataclass
class Hub:
    """Gives the outcomes in turn, the last one for ever; while `held`, no read ends."""

    outcomes: list[Checkpoint | BaseException]
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    started: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def fetch(self, wanted: HuggingFaceSource, token: str | None) -> Checkpoint:
        self.asked.append((wanted.repo, wanted.revision, token))
        self.started.release()
        assert self.released.wait(10)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@dataclass
class World:
    """A lookup with its Hub and clock, as a reconcile sees it."""

    hub: Hub
    lookup: HubLookup
    now: list[float]

    def ask(
        self, revision: str = "main", token: str | None = None, wake: Callable[[], None] = int
    ) -> ModelAnswer:
        return self.lookup.lookup(source(revision=revision), token, wake)

    async def settle(self, revision: str = "main", token: str | None = None) -> ModelAnswer:
        """Ask until the read that this starts has ended, and return what is known then."""
        self.hub.released.set()
        woken = asyncio.Event()
        self.ask(revision, token, woken.set)
        await asyncio.wait_for(woken.wait(), 10)
        return self.ask(revision, token)


MakeWorld = Callable[..., World]


@pytest.fixture
def make_world() -> Iterator[MakeWorld]:
    worlds: list[World] = []

    def make(*outcomes: Checkpoint | BaseException) -> World:
        hub, now = Hub(list(outcomes)), [1000.0]
        worlds.append(World(hub, HubLookup(hub.fetch, lambda: now[0]), now))
        return worlds[-1]

    yield make
    for world in worlds:
        world.hub.released.set()
        world.lookup.close()


async def test_the_first_question_is_answered_before_the_hub_is(make_world: MakeWorld) -> None:
    world = make_world(MODEL)
    answer = world.ask()  # the Hub holds its answer back
    assert answer == ModelPending("reading repository acme/tiny at revision main from the Hub")
    assert await world.settle() == MODEL


async def test_whoever_asked_meanwhile_is_woken_once_and_one_read_serves_all(
    make_world: MakeWorld,
) -> None:
    world, woken = make_world(MODEL), []
    for name in "abc":
        world.ask(wake=partial(woken.append, name))
    assert await world.settle() == MODEL
    assert woken == ["a", "b", "c"]
    assert len(world.hub.asked) == 1
    world.ask(wake=lambda: woken.append("late"))
    await asyncio.sleep(0)
    assert woken == ["a", "b", "c"]


async def test_a_branch_is_read_again_after_an_hour_and_serves_meanwhile(
    make_world: MakeWorld,
) -> None:
    world = make_world(MODEL, NEWER)
    assert await world.settle() == MODEL
    world.now[0] += 3599
    assert world.ask() == MODEL
    assert len(world.hub.asked) == 1
    world.now[0] += 1
    world.hub.released.clear()
    assert world.ask() == MODEL
    assert await world.settle() == NEWER


async def test_a_commit_is_read_once(make_world: MakeWorld) -> None:
    world = make_world(MODEL)
    await world.settle(COMMIT)
    world.now[0] += 10**9
    assert world.ask(COMMIT) == MODEL
    assert len(world.hub.asked) == 1


async def test_what_was_known_stands_when_a_refresh_fails(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(MODEL, MISSING, NEWER)
    await world.settle()
    world.now[0] += 3600
    assert await world.settle() == MODEL
    assert "no such repository; next try in 30 s" in caplog.text
    world.now[0] += 29
    world.ask()
    assert len(world.hub.asked) == 2
    world.now[0] += 1
    assert await world.settle() == NEWER


async def test_a_failure_is_tried_again_ever_more_rarely(make_world: MakeWorld) -> None:
    world = make_world(MISSING)
    delays = []
    for _ in range(7):
        answer = await world.settle()
        assert isinstance(answer, ModelUnavailable)
        assert (answer.reason, answer.message) == (Reason.MODEL_NOT_FOUND, "no such repository")
        assert answer.retry_after_seconds is not None
        delays.append(answer.retry_after_seconds)
        world.now[0] += answer.retry_after_seconds
    assert delays == [30, 60, 120, 240, 480, 600, 600]
    assert len(world.hub.asked) == 7


async def test_a_refusal_does_not_flap_while_it_is_tried_again(make_world: MakeWorld) -> None:
    world = make_world(MISSING, MODEL)
    await world.settle()
    world.now[0] += 10
    early = world.ask()
    assert early == ModelUnavailable(Reason.MODEL_NOT_FOUND, "no such repository", 20.0)
    world.now[0] += 20
    world.hub.released.clear()
    assert world.ask() == ModelUnavailable(Reason.MODEL_NOT_FOUND, "no such repository", 30.0)
    assert await world.settle() == MODEL


async def test_the_servers_wish_to_wait_is_kept(make_world: MakeWorld) -> None:
    slow_down = ModelLookupError(Reason.MODEL_SOURCE_UNREACHABLE, "429", 900.0)
    answer = await make_world(slow_down).settle()
    assert answer == ModelUnavailable(Reason.MODEL_SOURCE_UNREACHABLE, "429", 900.0)


async def test_a_new_token_or_revision_is_a_new_question(make_world: MakeWorld) -> None:
    world = make_world(MISSING, MODEL, NEWER)
    assert isinstance(await world.settle(), ModelUnavailable)
    assert await world.settle(token="hf_right") == MODEL
    assert await world.settle(revision="v2", token="hf_right") == NEWER
    assert isinstance(world.ask(), ModelUnavailable)
    assert world.hub.asked == [
        ("acme/tiny", "main", None),
        ("acme/tiny", "main", "hf_right"),
        ("acme/tiny", "v2", "hf_right"),
    ]


async def test_a_defect_of_ours_is_an_answer_too(make_world: MakeWorld) -> None:
    answer = await make_world(ZeroDivisionError("hf_secret")).settle()
    assert isinstance(answer, ModelUnavailable)
    assert answer.reason is Reason.MODEL_SOURCE_UNREACHABLE
    assert "unexpected ZeroDivisionError" in answer.message
    assert "hf_secret" not in answer.message


async def test_at_most_two_models_are_read_at_once(make_world: MakeWorld) -> None:
    world = make_world(MODEL)
    for number in range(5):
        world.ask(revision=f"v{number}")
    for _ in range(WORKERS):
        assert await asyncio.to_thread(world.hub.started.acquire, timeout=10)
    assert len(world.hub.asked) == WORKERS
    await world.settle("v4")
    assert len(world.hub.asked) == 5


async def test_the_model_asked_for_longest_ago_is_forgotten(make_world: MakeWorld) -> None:
    world = make_world(MODEL)
    for number in range(CAPACITY):
        await world.settle(f"v{number}")
    world.ask("v0")
    await world.settle("one-more")
    assert world.ask("v0") == MODEL
    assert isinstance(world.ask("v1"), ModelPending)


async def test_a_token_is_not_kept(make_world: MakeWorld) -> None:
    world = make_world(MODEL)
    token = "hf_" + "k" * 20
    await world.settle(token=token)
    world.hub.asked.clear()
    gc.collect()
    assert token not in repr(vars(world.lookup))


async def test_after_close_nobody_is_woken_and_nothing_is_read(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world, woken = make_world(MODEL), []
    world.ask(wake=lambda: woken.append(1))
    assert await asyncio.to_thread(world.hub.started.acquire, timeout=10)
    world.ask(revision="queued", wake=lambda: woken.append(2))
    world.lookup.close()
    world.hub.released.set()
    assert isinstance(world.ask(revision="later"), ModelPending)
    for thread in threading.enumerate():
        if thread.name.startswith("tonnage-hub"):
            await asyncio.to_thread(thread.join, 10)
    await asyncio.sleep(0)
    assert woken == []
    assert "later" not in str(world.hub.asked)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_read_that_outlives_the_loop_ends_in_silence(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(MODEL)

    async def ask_and_leave() -> None:
        world.ask()
        await asyncio.to_thread(world.hub.started.acquire, timeout=10)

    asyncio.run(ask_and_leave())
    world.hub.released.set()
    for thread in threading.enumerate():
        if thread.name.startswith("tonnage-hub"):
            world.lookup.close()
            thread.join(10)
    assert caplog.records == []
