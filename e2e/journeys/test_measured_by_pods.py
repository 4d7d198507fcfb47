"""Without a Prometheus the pods themselves are asked what vLLM measured; what differs is learnt,
and nobody who runs is moved."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, has
from e2e.models import inference
from e2e.operator_process import CORRECTIONS, NAMESPACE, ROOT, OperatorProcess
from e2e.page_server import Page, PageServer
from e2e.rest import Json
from tonnage.render.defaults import defaults

PAGE = (ROOT / "tests" / "data" / "vllm-metrics" / "idle.txt").read_bytes()
TOKENS = 524288
"""Of that page."""

ONE_POOL: Json = {
    "groups": [{"name": "mi300x", "count": 1, "accelerator": "mi300x", "gpusPerNode": 8}]
}


class _Vllm(PageServer):
    def answer(self, path: str) -> Page:
        return Page(PAGE, status=200 if path == "/metrics" else 404)


@pytest.fixture
def vllm() -> Iterator[str]:
    """An address of loopback, of this process alone, where a real vLLM's metrics are served on the
    port of the pods."""
    host = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}.1"
    with _Vllm(host, defaults().server.port):
        yield host


@pytest.fixture
def learner(operator: OperatorProcess) -> Iterator[OperatorProcess]:
    """The operator of all journeys, which has learnt nothing yet, and is to have forgotten all when
    the next one begins."""
    operator.close()
    operator.start()
    yield operator
    operator.close()


def test_what_pods_measured_is_told_and_learnt_and_moves_nobody(
    fleet: UseFleet, user: User, learner: OperatorProcess, vllm: str
) -> None:
    fleet(ONE_POOL)
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    before = user.pods("llama")
    for pod in before:
        address = {"status": {"podIP": vllm, "podIPs": [{"ip": vllm}]}}
        user.admin.patch("pods", pod, address, subresource="status")
    told = user.wait("llama", has("PredictionAccurate", "False", "MeasuredLess"))
    (placement,) = told["placements"]
    assert placement["measured"]["kvCacheTokens"] == TOKENS
    assert placement["measured"]["blocks"] == 4096
    mine = f"learntOf: {user.namespace}/llama\n"
    user.admin.wait_for(
        "configmaps",
        CORRECTIONS,
        lambda found: any(mine in entry for entry in found["data"].values()),
        NAMESPACE,
    )

    user.apply(inference("next", "llama-3.1-8b"))
    user.wait_ready("next")
    (placement,) = user.status("next")["placements"]
    assert placement["memory"]["correctionGiB"] > 0
    assert abs(placement["kvCacheTokens"] - TOKENS) <= 16
    assert user.pods("llama") == before
    assert "tonnage_corrections 0.0" not in learner.metrics()
