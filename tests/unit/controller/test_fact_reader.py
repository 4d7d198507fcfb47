"""How often the ConfigMaps with facts of adapters are read."""

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.faults.fake_clock import FakeClock
from tonnage import delays
from tonnage.controller.fact_reader import MAX_KEPT_BYTES, FactReader
from tonnage.kube.kinds import CONFIG_MAPS, SECRETS
from tonnage.kube.protocol import Kind, NotFoundError

UID = "llama-1"


class Bench:
    """A reader, its clock, and an API server."""

    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), FakeClock()
        self.reader = FactReader(self.api, self.clock.now)

    def write(self, value: str, name: str = "sql", kind: Kind = CONFIG_MAPS) -> None:
        metadata = {"name": name, "namespace": "chat"}
        self.api.put(kind, {"metadata": metadata, "data": {"value": value}})

    async def read(
        self, generation: int = 1, name: str = "sql", kind: Kind = CONFIG_MAPS, uid: str = UID
    ) -> str:
        body = await self.reader.at(uid, generation).get(kind, "chat", name)
        value: str = body["data"]["value"]
        return value


async def test_a_config_map_is_read_once_a_minute() -> None:
    bench = Bench()
    bench.write("old")
    assert await bench.read() == "old"
    bench.write("new")
    bench.clock.advance(delays.ADAPTER_FACTS - 1)
    assert await bench.read() == "old"
    bench.clock.advance(1)
    assert await bench.read() == "new"
    assert bench.api.call_count == 2


async def test_a_new_generation_and_another_object_read_anew() -> None:
    bench = Bench()
    bench.write("old")
    assert await bench.read() == "old"
    bench.write("new")
    assert await bench.read(generation=2) == "new"
    assert await bench.read(uid="mistral-1") == "new"


async def test_an_object_that_is_made_again_reads_anew() -> None:
    bench = Bench()
    bench.write("old")
    assert await bench.read() == "old"
    bench.write("new")
    assert await bench.read(uid="llama-2") == "new"


async def test_secrets_are_read_live() -> None:
    bench = Bench()
    bench.write("old", kind=SECRETS)
    assert await bench.read(kind=SECRETS) == "old"
    bench.write("new", kind=SECRETS)
    assert await bench.read(kind=SECRETS) == "new"


async def test_an_error_is_not_kept() -> None:
    bench = Bench()
    with pytest.raises(NotFoundError):
        await bench.read()
    bench.write("new")
    assert await bench.read() == "new"


async def test_the_oldest_are_dropped_where_all_take_too_much_memory() -> None:
    bench = Bench()
    large = "x" * 1024 * 1024
    count = MAX_KEPT_BYTES // len(large)
    for number in range(count):
        bench.write(large, f"sql-{number}")
        await bench.read(name=f"sql-{number}")
    bench.write("new", "sql-0")
    bench.write("new", f"sql-{count - 1}")
    assert await bench.read(name="sql-0") == "new"
    assert await bench.read(name=f"sql-{count - 1}") == large


async def test_what_is_read_again_counts_once() -> None:
    bench = Bench()
    bench.write("x" * (MAX_KEPT_BYTES // 4), "large")
    for _ in range(8):
        await bench.read(name="large")
        bench.clock.advance(delays.ADAPTER_FACTS)
    bench.write("old", "small")
    await bench.read(name="small")
    await bench.read(name="large")
    bench.write("new", "small")
    assert await bench.read(name="small") == "old"
