"""A replica on two nodes: two containers of one LeaderWorkerSet, as two processes on loopback."""

import http.client
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.ports import PortLease
from e2e.programs.vllm_server import VllmServer
from tests.golden.render.inputs import make_deployment, make_option
from tests.vllm.server.conftest import spec_for

START = 300.0
COMPILATION = '--compilation-config={"mode": 2, "backend": "eager"}'
"""vLLM's CPU runner makes the buffers that a stage receives into only where it compiles, and it
cannot compile experts."""

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


def rendered_containers(
    model: Path, parallelism: Mapping[str, int], ports: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The containers of leader and worker, with what the LeaderWorkerSet controller adds."""
    is_staged = "pipeline" in parallelism
    extra = (COMPILATION,) if is_staged else ()
    spec = spec_for(model, extra=extra, cpu=LOOPBACK, enforce_eager=not is_staged)
    option = make_option("h100-sxm-80gb", nodes=2, **parallelism)
    templates = make_deployment(spec, option)["spec"]["leaderWorkerTemplate"]
    containers = []
    for index, name in enumerate(("leaderTemplate", "workerTemplate")):
        (container,) = templates[name]["spec"]["containers"]
        added = {"LWS_WORKER_INDEX": str(index), "LWS_LEADER_ADDRESS": "127.0.0.1"}
        env = [{"name": key, "value": value} for key, value in added.items()]
        chosen = [f"--{name}-port={port}" for name, port in ports.items()]
        arguments = [*container["args"], *chosen]
        containers.append({**container, "args": arguments, "env": [*container["env"], *env]})
    return containers


@contextmanager
def start_group(
    model: Path, parallelism: Mapping[str, int], python: Path, folders: pytest.TempPathFactory
) -> Iterator[tuple[VllmServer, VllmServer]]:
    """Leader and worker, once the leader answers."""
    lease = PortLease(["master", "data-parallel-rpc"])
    with ExitStack() as running:
        running.callback(lease.release)
        containers = rendered_containers(model, parallelism, lease.ports)
        leader, worker = (
            running.enter_context(VllmServer(each, python, folders.mktemp("pod")))
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


def test_two_stages_serve_a_request_and_neither_serves_alone(
    tiny_llama: Path, python: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with start_group(tiny_llama, {"pipeline": 2}, python, tmp_path_factory) as (leader, worker):
        status, answer = complete(leader, timeout=120)
        assert status == 200
        assert answer["usage"]["completion_tokens"] == 4
        assert worker.ask_health() is None, "a headless process serves nothing"
        worker.kill()
        assert not answers(leader)


def test_two_data_parallel_ranks_share_the_experts(
    tiny_mixtral: Path, python: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """vLLM has no exchange of experts on a CPU, so this group answers no request."""
    with start_group(tiny_mixtral, {"data": 2}, python, tmp_path_factory) as (leader, worker):
        for rank, server in enumerate((leader, worker)):
            assert re.search(
                rf"EP Rank {rank}/2\].* Local/global number of experts: 2/4", server.log
            )
        assert worker.ask_health() is None, "a headless process serves nothing"
