"""A server that runs as Tonnage renders it says and does what the code expects of it."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tonnage.api.inference import Rollout
from tonnage.catalog.model import Vendor
from tonnage.cli.main import main
from tonnage.engines.defaults import load_defaults
from tonnage.engines.lifetime import startup_seconds, termination_grace_seconds
from tonnage.engines.medium import Medium
from tonnage.telemetry.pod_metrics import read_page

ROOT = Path(__file__).parents[3]
PATIENCE = startup_seconds(1, Medium.PATH)
GRACE = (
    termination_grace_seconds(Vendor.NVIDIA, Rollout()) - load_defaults().server.pre_stop_seconds
)
"""Seconds from SIGTERM to SIGKILL."""
LONG_ANSWER = {"model": "tiny", "prompt": "w7 w8 w9", "max_tokens": 450, "ignore_eos": True}

OF_OLDER_RELEASES = {"vllm:num_requests_swapped"}
"""The end of a pod waits for swapped requests, too, which engine V0 had."""


@pytest.fixture(scope="module")
def server(start):
    started = start()
    started.answers_before = started.wait_healthy(PATIENCE)
    return started


def read_events(response):
    """The text of each event of a completion, and the finish reasons among them."""
    assert response.status == 200
    lines = [line.strip() for line in response if line.strip()]
    assert lines[-1] == b"data: [DONE]"
    return [json.loads(line.removeprefix(b"data: "))["choices"][0] for line in lines[:-1]]


def samples(server, name):
    status, page = server.get("/metrics")
    assert status == 200
    families = text_string_to_metric_families(page.decode())
    return [sample for family in families for sample in family.samples if sample.name == name]


def test_the_port_refuses_connections_during_the_start(server):
    assert server.answers_before == {None}


def test_every_metric_that_the_operator_reads_exists(server):
    sources = [
        path.read_text("utf-8")
        for folder, pattern in (
            ("operator/tonnage", "*.py"),
            ("operator/tonnage", "*.yaml"),
            ("manifests/monitoring", "*"),
        )
        for path in (ROOT / folder).rglob(pattern)
        if path.is_file()
    ]
    read = {name for text in sources for name in re.findall(r"vllm:[a-z_]+[a-z]", text)}
    page = server.get("/metrics")[1].decode()
    names = set(re.findall(r"^vllm:\w+", page, re.MULTILINE))
    families = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in names}
    assert len(read) >= 5
    assert read - names - families == OF_OLDER_RELEASES


def test_the_measured_cache_equals_the_log_and_the_prediction(server, tiny_llama, capsys):
    measured = read_page(server.get("/metrics")[1])
    (logged,) = re.findall(r"KV cache size: ([\d,]+) tokens", server.log)
    assert measured.kv_cache_tokens == int(logged.replace(",", ""))

    config = str(tiny_llama / "config.json")
    main(["fit", "--config", config, "--accelerator", "h100-sxm-80gb", "--output", "json"])
    predicted = json.loads(capsys.readouterr().out)["kvBytesPerTokenPerGPU"]
    assert measured.kv_cache_tokens * predicted == pytest.approx(2**30, rel=0.001)


def test_it_answers_to_the_served_model_name_and_counts_the_request(server):
    before = sum(sample.value for sample in samples(server, "vllm:generation_tokens_total"))
    events = read_events(server.stream(LONG_ANSWER))
    assert events[-1]["finish_reason"] == "length"
    after = sum(sample.value for sample in samples(server, "vllm:generation_tokens_total"))
    assert after - before == LONG_ANSWER["max_tokens"]


def test_a_request_in_flight_is_answered_when_the_pod_ends(start):
    ending = start()
    ending.wait_healthy(PATIENCE)
    answer = ending.stream(LONG_ANSWER)
    first = answer.readline()
    ending.terminate()
    assert first.startswith(b"data: ")
    assert read_events(answer)[-1]["finish_reason"] == "length"
    ending.wait_ended(GRACE)


def test_a_server_whose_engine_was_killed_ends_with_exit_code_zero(start):
    """So exit code 0 is no proof of health: the code counts any end of a server as a failure."""
    struck = start()
    struck.wait_healthy(PATIENCE)
    struck.kill_engine()
    assert struck.wait_ended(60) == 0
