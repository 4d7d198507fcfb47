"""Changes in one namespace for which the operator needs each of its namespaced permissions."""

from __future__ import annotations

from functools import partial

from e2e.harness.operator_process import CORRECTIONS
from e2e.harness.rest import Json
from e2e.journeys.user import User, has, runs_on
from e2e.models import inference, token_secret
from e2e.nodes.descriptions import connected_h100s
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
TWO_NODES: Json = {
    "groups": [
        {"name": "mi300x", "count": 1, "accelerator": "mi300x", "gpusPerNode": 8},
        connected_h100s(2),
    ]
}
"""The fleet on which `serve_on_several_nodes` works, with the controller of LeaderWorkerSet."""

STRANGE: Json = {"name": "strange", "image": "strange"}


def go_back(user: User) -> None:
    """A rollout fails, and the template that served last is found again."""
    rollout = {"progressDeadline": "2s"}
    user.apply(inference("goes-back", "llama-3.1-8b", rollout=rollout))
    user.wait_ready("goes-back")
    user.apply(inference("goes-back", "llama-3.1-8b", rollout=rollout, behaviour="crash-loop"))
    user.wait("goes-back", has("Degraded", "True", "RolledBack"), timeout=60)


def spread_and_gather(user: User) -> None:
    """Replicas run on two pools, and then on one: the Service of the other placement goes. A single
    replica is left: the PodDisruptionBudget goes."""
    placement: Json = {"spread": {"policy": "ByCost"}}
    for replicas, services in ((10, 3), (2, 1), (1, 1)):
        fields: Json = {"replicas": replicas, "placement": placement}
        user.apply(inference("spreads", "llama-3.1-8b", max_model_len=8192, **fields))
        user.wait_ready("spreads", timeout=60)
        user.admin.until(
            "a Service over each of several placements",
            partial(_has_services, user, "spreads", services),
        )
    user.admin.wait_gone("poddisruptionbudgets", "spreads")
    user.admin.delete("infd", "spreads")


def tell_apart_and_together(user: User) -> None:
    """Long requests have an endpoint of their own, then another one, and then none."""
    long: Json = {"above": 8192}
    workload: Json = {"maxModelLen": 32768, "concurrency": 4}
    for long_context in (long, long | {"replicas": 2}, None):
        fields: Json = {
            "workload": workload | ({"longContext": long_context} if long_context else {})
        }
        user.apply(inference("apart", "llama-3.1-8b", **fields))
        user.wait_ready("apart", timeout=60)
    user.admin.wait_gone("infd", "apart-long")
    user.admin.delete("infd", "apart")


def meet_strangers(user: User) -> None:
    """The names of two children are somebody else's: who has them is looked up."""
    labels = {"app": "stranger"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [STRANGE]}}
    deployment = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    service = {"selector": labels, "ports": [{"port": 80}]}
    strangers: list[Json] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "spec": service},
    ]
    taken = {"first-mi300x": "first", "second": "second"}
    for stranger, name in zip(strangers, taken, strict=True):
        user.admin.apply([{**stranger, "metadata": {"name": name}}])
    for name in taken.values():
        user.apply(inference(name, "llama-3.1-8b", placement={"accelerators": ["mi300x"]}))
        user.wait(name, has("Accepted", "False", "NameConflict"))
        user.admin.delete("infd", name)
    for stranger, name in zip(strangers, taken, strict=True):
        user.admin.delete(stranger["kind"], name)


def serve_on_several_nodes(user: User) -> None:
    """A replica runs on two nodes, is scaled, moves to one node, and meets a name that is taken."""
    admin = user.admin
    on_two: Json = {"placement": {"accelerators": ["h100-sxm-80gb"]}}
    user.apply(inference("groups", "deepseek-v3", **on_two))
    user.wait_ready("groups", timeout=120)
    (group,) = user.children("leaderworkersets", "groups")
    name = group["metadata"]["name"]
    user.apply(inference("groups", "deepseek-v3", **on_two, replicas=0))
    admin.wait_for("leaderworkersets", name, lambda current: current["spec"]["replicas"] == 0)
    user.apply(inference("groups", "deepseek-v3", placement={"accelerators": ["mi300x"]}))
    admin.wait_gone("leaderworkersets", name, timeout=120)
    admin.delete("infd", "groups")
    template = {"spec": {"containers": [STRANGE]}}
    spec = {"replicas": 0, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template}}
    metadata = {"name": name}
    api_version = group["apiVersion"]
    stranger = {"apiVersion": api_version, "kind": "LeaderWorkerSet", "metadata": metadata}
    admin.apply([{**stranger, "spec": spec}])
    user.apply(inference("groups", "deepseek-v3", **on_two))
    user.wait("groups", has("Accepted", "False", "NameConflict"))
    admin.delete("infd", "groups")
    admin.delete("leaderworkersets", name)


def _has_services(user: User, name: str, count: int) -> bool:
    return len(user.children("services", name)) == count


def live_a_life(user: User) -> None:
    """A model is placed, moved, changed by others, fails, and goes."""
    admin = user.admin
    spread_and_gather(user)
    tell_apart_and_together(user)
    meet_strangers(user)
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
        lambda current: current["spec"]["ports"] == service["spec"]["ports"],
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
        user.admin.delete("infd", f"learns-{many}")


def _speaks_of(accelerator: str, config_map: Json) -> bool:
    return any(f"accelerator: {accelerator}\n" in entry for entry in config_map["data"].values())
