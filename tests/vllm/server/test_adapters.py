"""A real vLLM loads and serves the adapters of a spec, and takes others at run time."""

import asyncio
import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.programs.vllm_server import VllmServer
from tests.golden.render.inputs import container_of, make_deployment, make_option
from tests.support.faults.fake_clock import FakeClock
from tests.vllm.server.conftest import spec_for
from tonnage import delays
from tonnage.api.model import Lora
from tonnage.checkpoint.adapter import parse_adapter
from tonnage.engines.lifetime import startup_seconds
from tonnage.engines.medium import Medium
from tonnage.telemetry.pod_adapters import TASK_NAME, PodAdapters
from tonnage.telemetry.pods import ServingPod
from tonnage.telemetry.served_adapters import AdapterCall, PodCalls, ServedAdapters

MAKER = Path(__file__).parent / "make_tiny_adapter.py"
CLAIM = "/adapters/tuned"
"""Where the rendered container expects the claim."""
RUNTIME_UPDATES = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
SIZES = {"maxCpuLoras": 3, "targetModules": ["qkv_proj", "o_proj"]}


def adapter(name: str) -> dict[str, Any]:
    source = {"persistentVolumeClaim": {"claimName": "tuned", "path": name}}
    return {"name": name, "rank": 8, "source": source}


@pytest.fixture(scope="module")
def volume(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    for seed, name in enumerate(("sql", "legal", "later")):
        subprocess.run([python, MAKER, folder / name, str(seed)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def server(python: Path, tiny_llama: Path, volume: Path, tmp_path_factory: pytest.TempPathFactory):
    """A server with two adapters, whose container finds the claim in a folder of this machine."""
    spec = spec_for(tiny_llama, cpu=RUNTIME_UPDATES)
    lora = Lora.model_validate({"adapters": [adapter("sql"), adapter("legal")], **SIZES})
    option = make_option("h100-sxm-80gb")
    container = container_of(make_deployment(spec.model_copy(update={"lora": lora}), option))
    arguments = [argument.replace(CLAIM, str(volume)) for argument in container["args"]]
    folder = tmp_path_factory.mktemp("server")
    with VllmServer({**container, "args": arguments}, python, folder) as started:
        started.wait_healthy(startup_seconds(1, Medium.PATH))
        yield started


@pytest.fixture(scope="module")
def live_server(
    python: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmServer]:
    """A server whose adapters change while it runs."""
    spec = spec_for(tiny_llama)
    lora = Lora.model_validate({"updates": "Live", "maxRank": 8, **SIZES})
    option = make_option("h100-sxm-80gb")
    container = container_of(make_deployment(spec.model_copy(update={"lora": lora}), option))
    with VllmServer(container, python, tmp_path_factory.mktemp("live")) as started:
        started.wait_healthy(startup_seconds(1, Medium.PATH))
        yield started


def post(server: VllmServer, path: str, body: dict[str, Any]) -> tuple[int, str]:
    connection = http.client.HTTPConnection(server.address, timeout=120)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    return response.status, response.read().decode()


def models(server: VllmServer) -> dict[str, dict[str, Any]]:
    status, body = server.get("/v1/models")
    assert status == 200
    return {model["id"]: model for model in json.loads(body)["data"]}


def complete(server: VllmServer, model: str) -> str:
    request = {"model": model, "prompt": "w7 w8 w9", "max_tokens": 16, "temperature": 0}
    status, body = post(server, "/v1/completions", request)
    assert status == 200, body
    return str(json.loads(body)["choices"][0]["text"])


def test_a_ready_server_has_every_adapter_with_its_base_model(
    server: VllmServer, volume: Path
) -> None:
    served = models(server)
    assert served.keys() >= {"tiny", "sql", "legal"}
    assert (served["sql"]["root"], served["sql"]["parent"]) == (str(volume / "sql"), "tiny")


def test_each_adapter_changes_the_answer(server: VllmServer) -> None:
    answers = {complete(server, model) for model in ("tiny", "sql", "legal")}
    assert len(answers) == 3


def test_an_adapter_is_added_and_removed_without_a_restart(
    server: VllmServer, volume: Path
) -> None:
    added = {"lora_name": "later", "lora_path": str(volume / "later")}
    assert post(server, "/v1/load_lora_adapter", added)[0] == 200
    assert "later" in models(server)
    assert complete(server, "later") != complete(server, "tiny")
    assert post(server, "/v1/unload_lora_adapter", {"lora_name": "later"})[0] == 200
    assert "later" not in models(server)


@pytest.mark.parametrize(
    ("field", "value"), [("use_dora", True), ("bias", "all"), ("layer_replication", [[0, 2]])]
)
def test_what_tonnage_refuses_vllm_refuses_too(
    server: VllmServer, volume: Path, tmp_path: Path, field: str, value: object
) -> None:
    config = json.loads((volume / "sql" / "adapter_config.json").read_text())
    text = json.dumps({**config, field: value})
    (tmp_path / "adapter_config.json").write_text(text)
    (tmp_path / "adapter_model.safetensors").symlink_to(volume / "sql/adapter_model.safetensors")
    status, _ = post(
        server, "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": str(tmp_path)}
    )
    assert status >= 400
    with pytest.raises(ValueError, match=field):
        parse_adapter(text)


async def finish() -> None:
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == TASK_NAME))


async def test_the_operator_loads_and_unloads_adapters_of_a_running_server(
    live_server: VllmServer, volume: Path
) -> None:
    clock = FakeClock()
    pods = PodAdapters(clock=clock.monotonic)
    pod = ServingPod("tiny-0", "uid/0", live_server.address)

    async def change(*calls: AdapterCall) -> ServedAdapters:
        clock.advance(delays.ADAPTER_PAUSE)
        pods.update([PodCalls(pod, "tiny", calls)], lambda: None)
        await finish()
        return pods.read([pod], "tiny", 300.0, lambda: None)["tiny-0"]

    pods.read([pod], "tiny", 300.0, lambda: None)
    await finish()
    sql, legal = str(volume / "sql"), str(volume / "legal")
    loaded = await change(AdapterCall("sql", sql), AdapterCall("legal", legal))
    assert loaded == ServedAdapters({"sql": sql, "legal": legal})
    base, as_sql = complete(live_server, "tiny"), complete(live_server, "sql")
    assert len({base, as_sql, complete(live_server, "legal")}) == 3

    changed = await change(
        AdapterCall("legal"), AdapterCall("sql"), AdapterCall("sql", str(volume / "later"))
    )
    assert changed == ServedAdapters({"sql": str(volume / "later")})
    assert complete(live_server, "sql") not in {base, as_sql}

    missing = await change(AdapterCall("gone", str(volume / "gone")))
    assert "there are no files of an adapter" in missing.failed["gone"]
    assert missing.adapters == {"sql": str(volume / "later")}
