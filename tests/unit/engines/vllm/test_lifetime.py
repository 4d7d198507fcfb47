"""Probes, grace periods and deadlines."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from tests.golden.render.inputs import (
    GIB,
    container_of,
    make_checkpoint,
    make_deployment,
    make_option,
    make_spec,
    pod_of,
)
from tonnage.api.inference import Rollout
from tonnage.catalog.model import Vendor
from tonnage.engines.vllm.lifetime import (
    WAIT_UNTIL_IDLE,
    progress_deadline_seconds,
    startup_seconds,
)


@pytest.mark.parametrize(
    ("model_gib", "want_at_least", "want_at_most"),
    [
        pytest.param(32, 10 * 60, 20 * 60, id="small models get little more than the floor"),
        pytest.param(160, 30 * 60, 40 * 60, id="70B in BF16"),
        pytest.param(384, 60 * 60, 80 * 60, id="405B in FP8 gets an hour"),
        pytest.param(704, 90 * 60, 150 * 60, id="DeepSeek-V3"),
    ],
)
def test_the_start_timeout_grows_with_the_model(
    model_gib: int, want_at_least: int, want_at_most: int
) -> None:
    assert want_at_least <= startup_seconds(model_gib) <= want_at_most


def test_the_start_timeout_has_a_floor() -> None:
    assert startup_seconds(0) == 600


@pytest.mark.parametrize(("accelerator", "want"), [("mi300x", 160), ("h100-sxm-80gb", 150)])
def test_the_grace_period_covers_the_pause_the_drain_and_the_release_of_the_gpus(
    accelerator: str, want: int
) -> None:
    deployment = make_deployment(option=make_option(accelerator))
    container = container_of(deployment)
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    (drain,) = (
        int(argument.partition("=")[2])
        for argument in container["args"]
        if argument.startswith("--shutdown-timeout=")
    )
    assert pod_of(deployment)["terminationGracePeriodSeconds"] == want
    assert want >= pause + drain + 15


def test_the_progress_deadline_covers_an_image_a_start_and_the_end_of_an_old_pod() -> None:
    deadline = progress_deadline_seconds(160, Vendor.AMD, Rollout())
    assert make_deployment()["spec"]["progressDeadlineSeconds"] == deadline
    assert deadline > startup_seconds(160) + 160 + 1200


def test_probes_ask_for_health_on_the_named_port() -> None:
    container = container_of(make_deployment(checkpoint=make_checkpoint(131 * GIB)))
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
    assert container["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]


def test_the_liveness_probe_fails_after_a_minute() -> None:
    probe = container_of(make_deployment())["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 60


@pytest.mark.parametrize(
    ("deadline", "want"),
    [("45m", 2700), ("1500ms", 2), ("0s", 1), ("999999999h", 2**31 - 1)],
)
def test_the_users_deadline_becomes_whole_seconds(deadline: str, want: int) -> None:
    spec = make_spec(rollout={"progressDeadline": deadline})
    assert make_deployment(spec)["spec"]["progressDeadlineSeconds"] == want


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

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def page(running: float, waiting: float) -> str:
    return (
        "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
        f'vllm:num_requests_running{{engine="0",model_name="llama"}} {running}\n'
        f'vllm:num_requests_waiting{{engine="0",model_name="llama"}} {waiting}\n'
        'vllm:prompt_tokens_total{engine="0",model_name="llama"} 7000.0\n'
    )


def wait_until_idle(url: str, drain: str) -> int:
    command = [sys.executable, "-c", WAIT_UNTIL_IDLE, url, "0", drain, "0"]
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode


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
    with serving([page(1, 0)]) as (url, _):
        pass
    assert wait_until_idle(url, "1000") != 0
