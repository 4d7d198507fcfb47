"""A short life in one namespace for which the operator needs every right in a namespace."""

from __future__ import annotations

from functools import partial

from e2e.journeys.user import User, has, runs_on
from e2e.models import inference, token_secret
from e2e.operator_process import CORRECTIONS
from e2e.rest import Json
from tests.support.tiny_model import CONFIG

TOKENS = 1_000_000
"""More than the least that is asked for, and far from what any GPU would hold."""

TINY = {"maxModelLen": 2048}
FACTS: Json = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "facts"},
    "data": {"config.json": CONFIG.start.decode()},
}


def go_back(user: User) -> None:
    """A rollout fails, and the template that served last is found again."""
    rollout = {"progressDeadline": "2s"}
    user.apply(inference("goes-back", "llama-3.1-8b", rollout=rollout))
    user.wait_ready("goes-back")
    user.apply(inference("goes-back", "llama-3.1-8b", rollout=rollout, behaviour="crash-loop"))
    user.wait("goes-back", has("Degraded", "True", "RolledBack"), timeout=60)


def live_a_life(user: User) -> None:
    """A model is placed, moved, changed by others, fails, and goes."""
    admin = user.admin
    admin.apply([FACTS, token_secret("hf", "hf_anything")])
    source = {"configMap": {"name": "facts", "loadFrom": "acme/tiny"}}
    moves: Json = {"model": {"source": source}, "workload": TINY}
    user.apply(inference("moves", **moves, placement={"accelerators": ["mi300x"]}))
    user.wait_ready("moves")
    (service,) = user.children("services", "moves")
    port = {"spec": {"ports": [{**service["spec"]["ports"][0], "name": "changed"}]}}
    admin.patch("services", service["metadata"]["name"], port)
    admin.wait_for(
        "services",
        service["metadata"]["name"],
        lambda found: found["spec"]["ports"] == service["spec"]["ports"],
    )
    user.apply(inference("moves", **moves, placement={"accelerators": ["h100-sxm-80gb"]}))
    user.wait("moves", runs_on("nvidia-h100-sxm-80gb"), timeout=60)
    user.apply(inference("fails", "llama-3.1-8b", behaviour="crash-loop"))
    user.wait("fails", has("Ready", "False", "CrashLooping"), timeout=60)
    go_back(user)
    gated = {"huggingFace": {"repo": "acme/gated", "tokenSecretRef": {"name": "hf"}}}
    user.apply(inference("gated", model={"source": gated}, workload=TINY))
    user.wait("gated", has("Accepted", "False"), timeout=60)
    for name in ("moves", "fails", "goes-back", "gated"):
        admin.delete("infd", name)


def learn_twice(user: User, operators_namespace: str) -> None:
    """What vLLM measures is not what was predicted, on one accelerator and on another."""
    for many, accelerator in enumerate(("mi300x", "h100-sxm-80gb"), 1):
        placement = {"accelerators": [accelerator]}
        user.apply(inference(f"learns-{many}", "llama-3.1-8b", placement=placement))
        user.wait_ready(f"learns-{many}")
        user.admin.wait_for(
            "configmaps",
            CORRECTIONS,
            partial(_speaks_of, accelerator),
            operators_namespace,
            why="the operator to remember what was measured",
        )


def _speaks_of(accelerator: str, found: Json) -> bool:
    return any(f"accelerator: {accelerator}\n" in entry for entry in found["data"].values())
