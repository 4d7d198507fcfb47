"""Own writes are to be heard of; where nobody tells of one, its objects are looked at again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.fake_api import FakeApi
from tests.support.live_operator import run_in_virtual_time
from tonnage.api.names import API_VERSION, INFERENCE_DEPLOYMENT, LABEL_OWNER
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, INFERENCE_POOLS
from tonnage.kube.protocol import ConflictError, Kind, Object
from tonnage.reconcile.key import Key, Requeue
from tonnage.watch.echoes import LATE_SECONDS, Echoes, ExpectingKubeApi, told_whose

LLAMA, LONG = Key("chat", "llama"), Key("chat", "llama-long")
OWNER = {"apiVersion": API_VERSION, "kind": INFERENCE_DEPLOYMENT, "name": "llama", "uid": "u"}
OWNED = {
    "name": "llama-long",
    "namespace": "chat",
    "labels": {LABEL_OWNER: "llama"},
    "ownerReferences": [OWNER | {"controller": True}],
}
Write = Callable[[ExpectingKubeApi], Awaitable[object]]


def apply(kind: Kind, **spec: object) -> Write:
    return lambda api: api.apply(kind, {"metadata": OWNED, "spec": spec})


async def delete(api: ExpectingKubeApi) -> None:
    found = await api.get(DEPLOYMENTS, "chat", "llama-long")
    of_version = found["metadata"]["uid"], found["metadata"]["resourceVersion"]
    await api.delete(DEPLOYMENTS, "chat", "llama-long", *of_version)


async def scale(api: ExpectingKubeApi) -> None:
    await api.scale(DEPLOYMENTS, await api.get(DEPLOYMENTS, "chat", "llama-long"), 3)


class Heard:
    """Writes of one key through an API server that tells of them, or of none."""

    def __init__(self) -> None:
        self.again: list[Key] = []
        self.stored = FakeApi()
        self.echoes = Echoes(self.again.append)
        self.api = ExpectingKubeApi(self.stored, self.echoes)

    def tell(self, kind: Kind, event_type: str, body: Object) -> None:
        self.echoes.hear(body["metadata"]["uid"])

    async def write(self, *writes: Write, key: Key = LLAMA) -> None:
        async def reconcile(_: Key) -> Requeue:
            for write in writes:
                await write(self.api)
            return Requeue.never()

        await told_whose(reconcile)(key)


def looked_at(*writes: Write, told: bool, seconds: float = LATE_SECONDS + 1) -> list[Key]:
    """Who is looked at again within so many seconds after these writes."""

    async def play() -> list[Key]:
        heard = Heard()
        if told:
            heard.stored.listeners.append(heard.tell)
        await heard.write(*writes)
        await asyncio.sleep(seconds)
        return heard.again

    return run_in_virtual_time(play)


WRITES: dict[str, tuple[tuple[Write, ...], list[Key]]] = {
    "a Deployment": ((apply(DEPLOYMENTS),), [LLAMA]),
    "an endpoint": ((apply(INFERENCE_DEPLOYMENTS),), [LLAMA, LONG]),
    "twice": ((apply(DEPLOYMENTS, replicas=1), apply(DEPLOYMENTS, replicas=2)), [LLAMA]),
    "a delete": ((apply(DEPLOYMENTS), delete), [LLAMA]),
    "a scale": ((apply(DEPLOYMENTS), scale), [LLAMA]),
}


@pytest.mark.parametrize("name", WRITES)
def test_who_an_unheard_write_was_for_is_looked_at_again_once(name: str) -> None:
    writes, want = WRITES[name]
    assert looked_at(*writes, told=False, seconds=LATE_SECONDS - 1) == []
    assert looked_at(*writes, told=False, seconds=10 * LATE_SECONDS) == want


@pytest.mark.parametrize("name", WRITES)
def test_what_is_heard_of_before_its_answer_is_there_is_not_waited_for(name: str) -> None:
    assert looked_at(*WRITES[name][0], told=True) == []


def test_what_is_heard_of_later_is_not_waited_for_any_more() -> None:
    async def play() -> list[Key]:
        heard = Heard()
        await heard.write(apply(DEPLOYMENTS))
        (found,) = heard.stored.objects(DEPLOYMENTS)
        await asyncio.sleep(LATE_SECONDS - 1)
        heard.tell(DEPLOYMENTS, "MODIFIED", found)
        await asyncio.sleep(LATE_SECONDS)
        return heard.again

    assert run_in_virtual_time(play) == []


def test_the_event_of_an_object_answers_for_no_other() -> None:
    async def play() -> list[Key]:
        heard = Heard()
        await heard.write(apply(DEPLOYMENTS))
        heard.echoes.hear("another")
        await asyncio.sleep(LATE_SECONDS + 1)
        return heard.again

    assert run_in_virtual_time(play) == [LLAMA]


def test_what_nobody_watches_is_not_waited_for() -> None:
    assert looked_at(apply(INFERENCE_POOLS), told=False) == []


def test_a_write_that_failed_is_not_waited_for() -> None:
    async def play() -> list[Key]:
        heard = Heard()
        heard.stored.fail_next("apply", ConflictError("409"))
        with pytest.raises(ConflictError):
            await heard.write(apply(DEPLOYMENTS))
        await asyncio.sleep(LATE_SECONDS + 1)
        return heard.again

    assert run_in_virtual_time(play) == []


def test_who_is_in_work_is_nobodys_business_afterwards() -> None:
    async def play() -> list[Key]:
        heard = Heard()
        await heard.write(key=Key("chat", "gemma"))
        await apply(DEPLOYMENTS)(heard.api)
        await asyncio.sleep(LATE_SECONDS + 1)
        return heard.again

    assert run_in_virtual_time(play) == [LLAMA]  # by its ownerReference
