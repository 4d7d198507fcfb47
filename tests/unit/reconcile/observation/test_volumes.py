"""What the volumes of an object require of nodes, read from the API server."""

from typing import Any

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.faults.fake_clock import FakeClock
from tests.support.in_memory.cluster import spec_of
from tests.support.production.claims import volume_claim, volume_in_zone
from tonnage.api.parse import parse_spec
from tonnage.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from tonnage.kube.protocol import ForbiddenError, TransientError
from tonnage.reconcile.observation.volumes import VolumeReader, claims_of

SPEC = parse_spec(
    spec_of(
        podTemplate={
            "spec": {
                "volumes": [
                    {"name": "w", "persistentVolumeClaim": {"claimName": "weights"}},
                    {"name": "odd", "persistentVolumeClaim": {"claimName": "../odd"}},
                    {"name": "other", "emptyDir": {}},
                ]
            }
        }
    )
)


class Bench:
    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), FakeClock()
        self.reader = VolumeReader(self.api, self.clock.now)

    def bind(self, volume: str = "disk-1", zone: str = "a") -> None:
        claim = volume_claim("weights", bound=True, volume=volume)
        self.api.put(PERSISTENT_VOLUME_CLAIMS, claim)
        self.api.put(PERSISTENT_VOLUMES, volume_in_zone("disk-1", "weights", zone))

    async def read(self) -> list[str]:
        return [str(each) for each in await self.reader.read("chat", SPEC)]

    async def count_requests(self) -> int:
        before = len(self.api.calls)
        await self.read()
        return len(self.api.calls) - before


IN_A = "PersistentVolumeClaim weights: topology.kubernetes.io/zone In (a)"


async def test_a_bound_volume_is_read_once_in_ten_minutes() -> None:
    bench = Bench()
    bench.bind()
    assert await bench.read() == [IN_A]
    assert await bench.count_requests() == 0
    bench.clock.advance(601)
    assert await bench.count_requests() == 2


async def test_a_claim_is_read_again_until_it_is_bound() -> None:
    bench = Bench()
    assert await bench.read() == []
    bench.api.put(PERSISTENT_VOLUME_CLAIMS, volume_claim("weights", bound=False))
    assert await bench.read() == []
    bench.bind()
    assert await bench.read() == [IN_A]


@pytest.mark.parametrize("volume", ["../secrets/hf", "Disk", "", "gone"])
async def test_a_volume_that_the_claim_only_names_is_not_shown(volume: str) -> None:
    bench = Bench()
    bench.bind(volume)
    assert await bench.read() == []
    assert not any("secrets" in call.name for call in bench.api.calls)


@pytest.mark.parametrize("part", [None, {}, {"required": None}, "x"])
async def test_a_volume_for_every_node_requires_nothing(part: Any) -> None:
    bench = Bench()
    bench.bind()
    volume = volume_in_zone("disk-1", "weights", "a")
    bench.api.put(PERSISTENT_VOLUMES, {**volume, "spec": {**volume["spec"], "nodeAffinity": part}})
    assert await bench.read() == []
    assert await bench.count_requests() == 0


async def test_without_the_right_nothing_is_required_and_nothing_asked_again() -> None:
    bench = Bench()
    bench.bind()
    bench.api.fail_next("get", ForbiddenError("no"), kind=PERSISTENT_VOLUMES)
    assert await bench.read() == []
    assert await bench.count_requests() == 0


async def test_an_outage_is_no_answer() -> None:
    bench = Bench()
    bench.bind()
    bench.api.fail_next("get", TransientError("down"), kind=PERSISTENT_VOLUMES)
    with pytest.raises(TransientError):
        await bench.read()


async def test_an_outage_changes_nothing_about_a_volume_that_was_read() -> None:
    bench = Bench()
    bench.bind()
    assert await bench.read() == [IN_A]
    bench.clock.advance(601)
    bench.api.fail_next("get", TransientError("down"), kind=PERSISTENT_VOLUME_CLAIMS)
    assert await bench.read() == [IN_A]
    assert await bench.count_requests() == 2


def test_claims_of_the_model_and_of_the_template_count() -> None:
    assert claims_of(SPEC) == {"weights"}


def test_claims_with_adapters_count() -> None:
    source = {"persistentVolumeClaim": {"claimName": "adapters"}}
    lora = {"adapters": [{"name": "legal", "source": source, "rank": 8}]}
    assert claims_of(parse_spec(spec_of(lora=lora))) == {"adapters"}
