"""What others say comes in without the secrets in it: at each door, before it is kept anywhere."""

import asyncio
import json
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.api_server.fake_api import FakeApi
from tests.support.faults.fake_clock import FakeClock
from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.api.pod import EnvVar
from tonnage.kube.events import EventRecorder
from tonnage.kube.kinds import EVENTS
from tonnage.kube.responses import parse_error
from tonnage.kube.rights import Right
from tonnage.kube.throttle import TokenBucket
from tonnage.reconcile.observation.child_pods import ChildPod, ContainerEnd
from tonnage.reconcile.observation.children import ChildDeployment, read_deployment, secret_values
from tonnage.reconcile.observation.findings import Finding
from tonnage.reconcile.observation.pods.failures import find_failure, find_refusal
from tonnage.reconcile.status.conditions import make_conditions

NOW = datetime(2026, 1, 1, tzinfo=UTC)
URL, CLEAN = "https://robot:swordfish@registry.corp/x", "https://***@registry.corp/x"
ASKED = Right("patch", "apps", "deployments", "chat")


def deployment(**variables: str) -> ChildDeployment:
    env: list[dict[str, Any]] = [{"name": name, "value": text} for name, text in variables.items()]
    env.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}})
    template = {"spec": {"containers": [{"name": "vllm", "env": env}, {"name": "sidecar"}]}}
    return read_deployment(
        {
            "metadata": {
                "name": "llama",
                "uid": "u",
                "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"template": template},
        }
    )


def pod(**fields: Any) -> ChildPod:
    usual = {"node": "a", "ready": False, "deleting": False, "restarts": 0, "gpus": 1}
    return ChildPod(name="llama-0", placement="mi300x", created=NOW, **{**usual, **fields})


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422, 429, 500, 503])
def test_messages_of_the_api_server_and_of_webhooks_are_redacted(status: int) -> None:
    body = json.dumps({"message": f"denied: pull {URL}"}).encode()
    assert CLEAN in str(parse_error("apply", ASKED, status, {}, body))
    assert "swordfish" not in str(parse_error("apply", ASKED, status, {}, body))


def test_messages_of_a_proxy_are_redacted() -> None:
    page = f"<html>{URL} said Bearer swordfish-1234".encode()
    assert "swordfish" not in str(parse_error("get", ASKED, 502, {}, page))


def test_values_of_variables_named_as_secrets_are_redacted() -> None:
    known = deployment(MIRROR_TOKEN="swordfish-1", VLLM_API_KEY="swordfish-2", HF_HOME="/cache")
    assert secret_values(known) == {"swordfish-1", "swordfish-2"}


def test_messages_of_the_kubelet_and_logs_of_vllm_are_redacted() -> None:
    secrets = {"swordfish-1"}
    waiting = pod(waiting=("CreateContainerError", f"swordfish-1 from {URL}"))
    ended = pod(end=ContainerEnd(1, "Error", ""))
    log = f"ValueError: swordfish-1 is no token for {URL}"
    for failure in (
        find_failure([waiting], {}, secrets),
        find_failure([ended], {"llama-0": log}, secrets),
    ):
        assert failure is not None
        assert "swordfish" not in str(failure)
        assert CLEAN in str(failure)


def test_messages_of_refused_pods_are_redacted() -> None:
    refused = ChildDeployment(**{**vars_of(deployment()), "refused": f"pods is forbidden: {URL}"})
    failure = find_refusal([refused])
    assert failure is not None
    assert failure.words == f"pods is forbidden: {CLEAN}"


def vars_of(child: ChildDeployment) -> dict[str, Any]:
    return {each.name: getattr(child, each.name) for each in fields(child)}


SPECS = {
    "a map where a list belongs": {"env": {"MIRROR_TOKEN": "swordfish"}},
    "a number that is none": {"env": [{"name": "PIN", "value": 48151623}]},
    "a variable that is no object": {"env": ["MIRROR_TOKEN=swordfish"]},
    "a password in an address": {"version": URL},
}


@pytest.mark.parametrize("vllm", SPECS.values(), ids=SPECS.keys())
def test_values_of_a_refused_spec_are_redacted(vllm: dict[str, Any]) -> None:
    source = {"huggingFace": {"repo": "acme/tiny"}}
    spec = {"model": {"source": source}, "workload": {"maxModelLen": 8}, "engine": {"vllm": vllm}}
    with pytest.raises(InvalidSpecError) as caught:
        parse_spec(spec)
    assert "spec.engine.vllm." in str(caught.value)
    assert "swordfish" not in str(caught.value)
    assert "48151623" not in str(caught.value)


def test_a_validation_error_has_no_values() -> None:
    with pytest.raises(ValidationError) as caught:
        EnvVar.model_validate({"name": "MIRROR_TOKEN", "value": 48151623})
    assert "48151623" not in str(caught.value)


def test_other_values_of_a_spec_are_shown() -> None:
    with pytest.raises(InvalidSpecError, match=r"spec\.replicas: .*found -3"):
        parse_spec({"model": {"source": {}}, "workload": {"maxModelLen": 8}, "replicas": -3})


def test_conditions_are_redacted_when_they_are_created() -> None:
    finding = Finding(ConditionType.READY, False, Reason.CRASH_LOOPING, f"pulls {URL}")
    (condition,) = make_conditions([finding], [], 1, NOW)
    assert condition.message == f"pulls {CLEAN}"


async def test_events_are_redacted_when_they_are_created() -> None:
    api, clock = FakeApi(), FakeClock()
    recorder = EventRecorder(
        api.create_event,
        identity="op-0",
        new_bucket=lambda: TokenBucket(1, 1, clock.monotonic),
        now=clock.now,
    )
    regarding = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "llama", "namespace": "chat", "uid": "u1"},
    }
    recorder.record(regarding, True, "CrashLooping", f"pulls {URL}", "Ready")
    delivery = asyncio.create_task(recorder.deliver())
    await recorder.empty(within_seconds=5)
    delivery.cancel()
    (event,) = api.objects(EVENTS)
    assert event["note"] == f"pulls {CLEAN}"
