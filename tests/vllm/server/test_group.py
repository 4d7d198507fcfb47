"""A replica on two nodes: two containers of one LeaderWorkerSet, as two processes on loopback."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.ports import PortLease
from e2e.programs.vllm_server import VllmServer
from tests.golden.render.inputs import make_deployment, make_option
from tests.vllm.server.conftest import spec_for

START = 300.0
COMPILATION = '--compilation-config={"mode": 2, "backend": "eager"}'
"""vLLM's CPU runner makes the buffers that a stage receives into only where it compiles."""

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


def rendered_containers(model: Path, port: int) -> list[dict[str, Any]]:
    """The containers of leader and worker, with what the LeaderWorkerSet controller adds."""
    extra = (COMPILATION,)
    spec = spec_for(model, extra=extra, cpu=LOOPBACK, enforce_eager=False)
    option = make_option("h100-sxm-80gb", tensor=1, pipeline=2, nodes=2)
    templates = make_deployment(spec, option)["spec"]["leaderWorkerTemplate"]
    containers = []
    for index, name in enumerate(("leaderTemplate", "workerTemplate")):
        (container,) = templates[name]["spec"]["containers"]
        added = {"LWS_WORKER_INDEX": str(index), "LWS_LEADER_ADDRESS": "127.0.0.1"}
        env = [{"name": key, "value": value} for key, value in added.items()]
        arguments = [*container["args"], f"--master-port={port}"]
        containers.append({**container, "args": arguments, "env": [*container["env"], *env]})
    return containers


@pytest.fixture(scope="module")
def group(
    python: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[VllmServer, VllmServer]]:
    """Leader and worker, once the leader answers."""
    lease = PortLease(["rendezvous"])
    with ExitStack() as running:
        running.callback(lease.release)
        containers = rendered_containers(tiny_llama, lease.ports["rendezvous"])
        leader, worker = (
            running.enter_context(VllmServer(each, python, tmp_path_factory.mktemp("pod")))
            for each in containers
        )
        leader.wait_healthy(START)
        yield leader, worker


def complete(server: VllmServer, timeout: float) -> tuple[int, Mapping[str, Any]]:
    """Ask for four tokens."""
    connection = http.client.HTTPConnection(server.address, timeout=timeout)
    request = {"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": True}
    connection.request(
        "POST", "/v1/completions", json.dumps(request), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def answers(server: VllmServer) -> bool:
    """Whether a request succeeds. One whose other half is lost may wait for minutes."""
    try:
        return complete(server, timeout=20)[0] == 200
    except (TimeoutError, ConnectionError, http.client.HTTPException):
        return False


def test_both_halves_serve_a_request_and_neither_serves_alone(
    group: tuple[VllmServer, VllmServer],
) -> None:
    leader, worker = group
    status, answer = complete(leader, timeout=120)
    assert status == 200
    assert answer["usage"]["completion_tokens"] == 4
    assert worker.ask_health() is None, "a headless process serves nothing"
    worker.kill()
    assert not answers(leader)
