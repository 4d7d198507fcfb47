"""How servers end: with the flag of the release, or after a hook that waits for them."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from e2e.harness.loopback_server import LoopbackServer
from tests.golden.render.inputs import (
    container_of,
    make_deployment,
    make_option,
    make_spec,
    pod_of,
)
from tonnage.engines.vllm.drain import WAIT_UNTIL_IDLE


@pytest.mark.parametrize(
    ("drain", "want"), [("15m", 900), ("1500ms", 2), ("0s", 0), ("999999999h", 2**31 - 1)]
)
def test_the_users_drain_is_the_shutdown_timeout_and_in_the_grace_period(
    drain: str, want: int
) -> None:
    deployment = make_deployment(make_spec(rollout={"drain": drain}), option=make_option("mi300x"))
    container = container_of(deployment)
    assert f"--shutdown-timeout={want}" in container["args"]
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 10}}}
    assert pod_of(deployment)["terminationGracePeriodSeconds"] == 10 + want + 30
    assert deployment["spec"]["progressDeadlineSeconds"] <= 2**31 - 1


@pytest.mark.parametrize("drain", [None, "15m"])
def test_a_release_without_the_flag_waits_before_the_signal(drain: str | None) -> None:
    """Without the field its pods stay as they are."""
    rollout = {} if drain is None else {"drain": drain}
    engine = {"vllm": {"version": "v0.17.1"}}
    deployment = make_deployment(make_spec(rollout=rollout, engine=engine))
    container = container_of(deployment)
    assert not [each for each in container["args"] if each.startswith("--shutdown-timeout")]
    if drain is None:
        assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 10}}}
        return
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:3] == ["python3", "-c", WAIT_UNTIL_IDLE]
    assert command[3:] == ["http://127.0.0.1:8000/metrics", "10", "900", "1"]
    assert pod_of(deployment)["terminationGracePeriodSeconds"] >= 10 + 900


@contextmanager
def serving(pages: list[str]) -> Iterator[tuple[str, list[str]]]:
    """A server that answers with these pages, the last one again and again; and what was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages[min(len(asked), len(pages) - 1)].encode()
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with LoopbackServer(Handler) as server:
        yield f"{server.url}/metrics", asked


def page(running: float, waiting: float) -> str:
    return (
        "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
        f'vllm:num_requests_running{{engine="0",model_name="llama"}} {running}\n'
        f'vllm:num_requests_waiting{{engine="0",model_name="llama"}} {waiting}\n'
        'vllm:prompt_tokens_total{engine="0",model_name="llama"} 7000.0\n'
    )


def wait_until_idle(url: str, drain: str) -> int:
    command = [sys.executable, "-c", WAIT_UNTIL_IDLE, url, "0", drain, "0"]
    return subprocess.run(command, check=False, capture_output=True, timeout=300).returncode


def test_the_hook_ends_when_the_server_has_no_request() -> None:
    with serving([page(2, 1), page(1, 0), page(0, 1), page(0, 0)]) as (url, asked):
        assert wait_until_idle(url, "1000") == 0
        assert len(asked) == 4


def test_the_hook_ends_after_the_drain() -> None:
    with serving([page(1, 0)]) as (url, asked):
        assert wait_until_idle(url, "0") == 0
        assert asked == []
        assert wait_until_idle(url, "0.05") == 0
        assert asked


def test_the_hook_ends_where_the_server_has_ended() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/metrics"
        assert wait_until_idle(url, "1000") != 0
