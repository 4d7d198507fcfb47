"""LoRA adapters on the Hub: the operator reads what they are before pods start, and changes those
of running pods."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack

from e2e.doubles.vllm_adapters import VllmAdapters
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, argument, condition, container, has
from e2e.models import inference
from tests.support.foreign.hub_server import HubFile, HubServer, safetensors_file
from tests.support.foreign.tiny_model import CONFIG, WEIGHTS

MODEL = "acme/adapted"


def add_adapter(hub: HubServer, name: str, *, rank: int, **fields: object) -> None:
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, **fields}
    config = {"target_modules": ["q_proj", "v_proj"], **config}
    prefix = "base_model.model.model.layers.0.self_attn.q_proj"
    weights = safetensors_file(
        {
            f"{prefix}.lora_A.weight": ("BF16", [rank, 64]),
            f"{prefix}.lora_B.weight": ("BF16", [64, rank]),
        }
    )
    hub.add_repo(
        f"acme/{name}",
        {
            "adapter_config.json": HubFile.of(json.dumps(config)),
            "adapter_model.safetensors": weights,
        },
    )


def adapted(*adapters: str, replicas: int = 1, **lora: object) -> Json:
    listed = [
        {"name": name, "source": {"huggingFace": {"repo": f"acme/{name}"}}} for name in adapters
    ]
    source = {"huggingFace": {"repo": MODEL}}
    return inference(
        "adapted",
        model={"source": source},
        workload={"maxModelLen": 2048},
        lora={"adapters": listed, **lora},
        replicas=replicas,
    )


def target_modules(deployment: Json) -> list[str]:
    args: list[str] = container(deployment)["args"]
    begin = args.index("--lora-target-modules") + 1
    end = next(index for index in range(begin, len(args)) if args[index].startswith("--"))
    return args[begin:end]


def test_rank_and_layers_of_the_buffers_follow_from_the_adapters_on_the_hub(
    fleet: UseFleet, user: User, hub: HubServer
) -> None:
    fleet("tiny")
    hub.add_repo(MODEL, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    add_adapter(hub, "sql", rank=8)
    add_adapter(hub, "legal", rank=24)
    add_adapter(hub, "dora", rank=8, use_dora=True)
    add_adapter(hub, "code", rank=64, target_modules=["q_proj", "o_proj"])

    user.apply(adapted("sql", "legal"))
    user.wait_ready("adapted")
    # The operator may hear of the pod after its Deployment.
    served = [{"name": name, "readyReplicas": 1} for name in ("sql", "legal")]
    user.wait("adapted", lambda now: now["adapters"] == served)
    (deployment,) = user.children("deployments", "adapted")
    assert argument(deployment, "--max-lora-rank") == "32"
    assert target_modules(deployment) == ["qkv_proj"]
    pods = user.pods("adapted")

    user.apply(adapted("sql", "legal", "dora"))
    status = user.wait("adapted", has("Accepted", "False", "InvalidModel"))
    message = condition(status, "Accepted")["message"]
    assert "spec.lora.adapters[2].source.huggingFace: adapter dora" in message
    assert "use_dora is set" in message
    assert user.pods("adapted") == pods, "what runs stays"

    user.apply(adapted("sql", "legal", "code"))
    user.wait(
        "adapted",
        lambda now: (
            has("Ready")(now)
            and {one["name"]: one["readyReplicas"] for one in now["adapters"]}
            == {"sql": 1, "legal": 1, "code": 1}
        ),
    )
    (deployment,) = user.children("deployments", "adapted")
    assert argument(deployment, "--max-lora-rank") == "64"
    assert target_modules(deployment) == ["o_proj", "qkv_proj"]


LIVE = {"updates": "Live", "maxRank": 32, "maxCpuLoras": 4}


def serves(**ready: int) -> Callable[[Json], bool]:
    """A predicate on a status: so many ready replicas serve each adapter."""

    def holds(status: Json) -> bool:
        listed = {one["name"]: one["readyReplicas"] for one in status.get("adapters") or []}
        return listed == ready

    return holds


def test_adapters_of_running_pods_follow_the_spec_pod_by_pod(
    fleet: UseFleet, user: User, hub: HubServer
) -> None:
    fleet("tiny")
    hub.add_repo(MODEL, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    for name in ("chat", "math", "gone"):
        add_adapter(hub, name, rank=8)
    user.apply(adapted("chat", replicas=2, **LIVE))
    user.wait_ready("adapted")
    user.wait("adapted", serves(chat=0))
    before = user.pods("adapted")
    (deployment,) = user.children("deployments", "adapted")
    with ExitStack() as running:
        pods = {
            pod: running.enter_context(VllmAdapters(10 + n, "adapted", frozenset({"acme/gone"})))
            for n, pod in enumerate(sorted(before))
        }
        for pod, server in pods.items():
            address = {"status": {"podIP": server.host, "podIPs": [{"ip": server.host}]}}
            user.admin.patch("pods", pod, address, subresource="status")
        user.wait("adapted", serves(chat=2))
        assert [server.loaded for server in pods.values()] == [{"chat": "acme/chat"}] * 2

        user.apply(adapted("math", "gone", replicas=2, **LIVE))
        status = user.wait("adapted", serves(math=2, gone=0))
        assert [server.loaded for server in pods.values()] == [{"math": "acme/math"}] * 2
        assert "answers 404: there are no files" in status["adapters"][1]["message"]

        user.apply(adapted("math", replicas=2, **LIVE))
        user.wait("adapted", serves(math=2))
        pod, server = next(iter(pods.items()))
        server.restart()
        restart_container(user, pod)
        user.admin.until("the pod to get its adapter again", lambda: server.loaded)
        user.wait("adapted", serves(math=2))
    assert user.pods("adapted") == before
    (after,) = user.children("deployments", "adapted")
    assert after["metadata"]["generation"] == deployment["metadata"]["generation"]


def restart_container(user: User, pod: str) -> None:
    """The kubelet reports that the container of vLLM was started again."""
    body = user.admin.get("pods", pod)
    assert body is not None
    statuses = [one | {"restartCount": 1} for one in body["status"]["containerStatuses"]]
    user.admin.patch("pods", pod, {"status": {"containerStatuses": statuses}}, subresource="status")
