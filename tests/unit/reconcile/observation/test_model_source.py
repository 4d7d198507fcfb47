"""What is read of many adapters at once: each ConfigMap once, and other tasks go on meanwhile."""

import asyncio
import json
from typing import Any

from tests.support.api_server.fake_api import FakeApi
from tonnage.api.model import Lora
from tonnage.checkpoint.lookup import ModelPending
from tonnage.kube.kinds import CONFIG_MAPS
from tonnage.reconcile.observation.model_source import ReadAdapter, read_adapters

CONFIG = json.dumps({"r": 24, "lora_alpha": 48, "target_modules": ["q_proj"]})


def adapter(name: str, facts: str | None) -> dict[str, Any]:
    described = {"facts": {"configMap": {"name": facts}}} if facts else {}
    return {"name": name, "source": {"persistentVolumeClaim": {"claimName": "c", **described}}}


async def read(api: FakeApi, *facts: str | None) -> tuple[ReadAdapter, ...]:
    adapters = [adapter(f"a{index}", name) for index, name in enumerate(facts)]
    lora = Lora.model_validate({"adapters": adapters})
    return await read_adapters(api, lambda source, token: ModelPending(""), "chat", lora)


async def test_adapters_that_share_a_config_map_read_it_once() -> None:
    api = FakeApi()
    for name in ("one", "two"):
        metadata = {"name": name, "namespace": "chat"}
        api.put(CONFIG_MAPS, {"metadata": metadata, "data": {"adapter_config.json": CONFIG}})
    got = await read(api, "one", "two", None, *["one"] * 100)
    ranks = [each.facts.rank if each.facts else None for each in got]
    assert ranks == [24, 24, None, *[24] * 100]
    assert api.call_count == 2


async def test_other_tasks_go_on_while_config_maps_are_read() -> None:
    went_on: list[bool] = []
    asyncio.get_running_loop().call_soon(went_on.append, True)
    await read(FakeApi(), "one")
    assert went_on
