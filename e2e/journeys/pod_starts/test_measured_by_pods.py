"""Without a Prometheus the operator asks the pods what vLLM measured; a difference is recorded,
and no running replica is moved."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from e2e.doubles.page_server import Page, PageServer
from e2e.harness.operator_process import CORRECTIONS, NAMESPACE, ROOT, OperatorProcess
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from tonnage.engines.defaults import load_defaults

PAGE = (ROOT / "tests" / "data" / "vllm-metrics" / "idle.txt").read_bytes()
TOKENS = 524288
"""Of that page."""

ONE_POOL: Json = {
    "groups": [{"name": "mi300x", "count": 1, "accelerator": "mi300x", "gpusPerNode": 8}]
}
MI300X: Json = {"name": "mi300x", "accelerator": "mi300x", "gpusPerNode": 2}
H100: Json = {"name": "h100", "accelerator": "h100-sxm-80gb", "gpusPerNode": 1}


class _Vllm(PageServer):
    """A real vLLM's metrics on the port of the pods, at an address of loopback that is of this
    process alone; `number` tells it from others."""

    def __init__(self, number: int, tokens: int = TOKENS) -> None:
        self.host = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}.{number}"
        super().__init__(self.host, load_defaults().server.port)
        self._page = PAGE.replace(f'"{TOKENS}"'.encode(), f'"{tokens}"'.encode())

    def answer(self, path: str) -> Page:
        return Page(self._page, status=200 if path == "/metrics" else 404)


@pytest.fixture
def vllm() -> Iterator[str]:
    """The address of one."""
    with _Vllm(1) as server:
        yield server.host


@pytest.fixture
def learner(operator: OperatorProcess) -> Iterator[OperatorProcess]:
    """The operator of all journeys, which has no corrections yet, and has none again when
    the next one begins."""
    operator.close()
    operator.start()
    yield operator
    operator.close()


def test_a_measurement_is_reported_and_stored_as_a_correction_and_moves_no_replica(
    fleet: UseFleet, user: User, learner: OperatorProcess, vllm: str
) -> None:
    fleet(ONE_POOL)
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    before = user.pods("llama")
    _answer_at(user, before, vllm)
    status = user.wait("llama", has("PredictionAccurate", "False", "MeasuredLess"), timeout=90)
    (placement,) = status["placements"]
    assert placement["measured"]["kvCacheTokens"] == TOKENS
    assert placement["measured"]["blocks"] == 4096
    mine = f"learntOf: {user.namespace}/llama\n"
    user.admin.wait_for(
        "configmaps",
        CORRECTIONS,
        lambda config_map: any(mine in entry for entry in entries(config_map)),
        NAMESPACE,
        timeout=90,
    )

    user.apply(inference("next", "llama-3.1-8b"))
    (placement,) = user.wait_ready("next")["placements"]
    assert placement["memory"]["correctionGiB"] > 0
    assert abs(placement["kvCacheTokens"] - TOKENS) <= 16
    assert user.pods("llama") == before
    assert "tonnage_corrections 0.0" not in learner.metrics()


def test_while_spread_each_placement_has_its_own_measurement_and_prediction(
    fleet: UseFleet, user: User, learner: OperatorProcess
) -> None:
    """MI300X is as predicted, H100 has half."""
    fleet({"groups": [MI300X, H100]})
    placement = {"spread": {"policy": "WhenShort"}}
    user.apply(inference("llama", "llama-3.1-8b", replicas=3, placement=placement))
    predicted = _tokens(user.wait_ready("llama"), "kvCacheTokens")
    before = user.pods("llama")
    half = predicted["h100-sxm-80gb"] // 2
    with _Vllm(1, predicted["mi300x"]) as amd, _Vllm(2, half) as nvidia:
        _answer_at(user, {pod for pod in before if "mi300x" in pod}, amd.host)
        user.wait("llama", has("PredictionAccurate", "True", "AsPredicted"), timeout=90)
        _answer_at(user, {pod for pod in before if "h100" in pod}, nvidia.host)
        status = user.wait("llama", has("PredictionAccurate", "False", "MeasuredLess"), timeout=90)
    measured = _tokens(status, "measuredKvCacheTokens")
    assert measured == {"mi300x": predicted["mi300x"], "h100-sxm-80gb": half}
    assert [placement["measured"]["kvCacheTokens"] for placement in status["placements"]] == [
        *measured.values()
    ]
    message = condition(status, "PredictionAccurate")["message"]
    assert message.startswith("on nvidia-h100-sxm-80gb (placement h100-sxm-80gb) a replica holds ")
    config_map = user.admin.wait_for("configmaps", CORRECTIONS, entries, NAMESPACE, timeout=90)
    (entry,) = entries(config_map)
    assert "accelerator: h100-sxm-80gb\n" in entry
    assert f"learntOf: {user.namespace}/llama\n" in entry
    assert user.pods("llama") == before
    assert has("Ready")(user.status("llama"))


def entries(config_map: Json) -> list[str]:
    """The corrections that a ConfigMap has."""
    return list((config_map.get("data") or {}).values())


def _answer_at(user: User, pods: set[str], host: str) -> None:
    """Kubernetes tells that the pods have this address."""
    for pod in pods:
        address = {"status": {"podIP": host, "podIPs": [{"ip": host}]}}
        user.admin.patch("pods", pod, address, subresource="status")


def _tokens(status: Json, field: str) -> dict[str, int]:
    """That field of the placements, by accelerator."""
    return {placement["accelerator"]: placement[field] for placement in status["placements"]}
