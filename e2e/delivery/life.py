"""A short life in one namespace for which the operator needs every right in a namespace."""

from __future__ import annotations

from e2e.journeys.user import User, has, runs_on
from e2e.models import inference, token_secret
from e2e.rest import Json
from tests.support.tiny_model import CONFIG

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
