"""Changes in one namespace for which the operator needs each of its namespaced permissions."""

from __future__ import annotations

from functools import partial

from e2e.harness.admin import SLOW
from e2e.harness.operator_process import CORRECTIONS
from e2e.harness.rest import Json
from e2e.journeys.user import Predicate, User, condition, has, runs_on
from e2e.models import inference, token_secret
from e2e.nodes.descriptions import connected_h100s
from e2e.volumes import CLAIM
from tests.support.foreign.hub_server import HubServer
from tests.support.foreign.tiny_model import CONFIG, SHARDS

TOKENS = 1_000_000
"""More than the least that is asked for, and far from what any GPU would hold."""

TINY = {"maxModelLen": 2048}
CACHED = "acme/cached"
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

BY_DRIVER: Json = {
    "groups": [
        {"name": "mi300x", "accelerator": "mi300x", "gpusPerNode": 8, "draDriver": "current"},
    ]
}
"""The fleet on which `serve_by_claims` works."""

STRANGE: Json = {"name": "strange", "image": "strange"}
IMPATIENT = {"progressDeadline": "2s"}


def go_back(user: User) -> None:
    """A rollout fails, and the template that served last is found again. What serves first has all
    the time that it needs."""
    user.apply(inference("goes-back", "llama-3.1-8b"))
    user.wait_ready("goes-back", timeout=SLOW)
    user.apply(inference("goes-back", "llama-3.1-8b", rollout=IMPATIENT, behaviour="crash-loop"))
    user.wait("goes-back", has("Degraded", "True", "RolledBack"), timeout=SLOW)


def spread_and_gather(user: User) -> None:
    """Replicas run on two pools, and then on one: the Service of the other placement goes. A single
    replica is left: the PodDisruptionBudget goes."""
    placement: Json = {"spread": {"policy": "ByCost"}}
    for replicas, services in ((10, 3), (2, 1), (1, 1)):
        fields: Json = {"replicas": replicas, "placement": placement}
        user.apply(inference("spreads", "llama-3.1-8b", max_model_len=8192, **fields))
        user.wait_ready("spreads", timeout=SLOW)
        user.admin.until(
            "a Service over each of several placements",
            partial(_has_services, user, "spreads", services),
            timeout=SLOW,
        )
    user.admin.wait_gone("poddisruptionbudgets", "spreads", timeout=SLOW)
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
        user.wait_ready("apart", timeout=SLOW)
    user.admin.wait_gone("infd", "apart-long", timeout=SLOW)
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
    for stranger, name in zip(strangers, taken.values(), strict=True):
        user.apply(inference(name, "llama-3.1-8b", placement={"accelerators": ["mi300x"]}))
        user.wait(name, _is_taken_by(stranger["kind"]), timeout=SLOW)
        user.admin.delete("infd", name)
    for stranger, name in zip(strangers, taken, strict=True):
        user.admin.delete(stranger["kind"], name)


def serve_on_several_nodes(user: User) -> None:
    """A replica runs on two nodes, fails and goes back, is scaled, moves to one node, and meets a
    name that is taken."""
    admin = user.admin
    on_two: Json = {"placement": {"accelerators": ["h100-sxm-80gb"]}}
    user.apply(inference("groups", "deepseek-v3", **on_two))
    user.wait_ready("groups", timeout=SLOW)
    fails: Json = {"rollout": IMPATIENT, "behaviour": "crash-loop"}
    user.apply(inference("groups", "deepseek-v3", **on_two, **fails))
    user.wait("groups", has("Degraded", "True", "RolledBack"), timeout=SLOW)
    (group,) = user.children("leaderworkersets", "groups")
    name = group["metadata"]["name"]
    user.apply(inference("groups", "deepseek-v3", **on_two, replicas=0))
    admin.wait_for(
        "leaderworkersets",
        name,
        lambda current: current["spec"]["replicas"] == 0,
        timeout=SLOW,
    )
    user.apply(inference("groups", "deepseek-v3", placement={"accelerators": ["mi300x"]}))
    admin.wait_gone("leaderworkersets", name, timeout=SLOW)
    admin.delete("infd", "groups")
    template = {"spec": {"containers": [STRANGE]}}
    spec = {"replicas": 0, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template}}
    metadata = {"name": name}
    api_version = group["apiVersion"]
    stranger = {"apiVersion": api_version, "kind": "LeaderWorkerSet", "metadata": metadata}
    admin.apply([{**stranger, "spec": spec}])
    user.apply(inference("groups", "deepseek-v3", **on_two))
    user.wait("groups", _is_taken_by("LeaderWorkerSet"), timeout=SLOW)
    admin.delete("infd", "groups")
    admin.delete("leaderworkersets", name)


def serve_by_claims(user: User) -> None:
    """Pods get their GPUs by claims, from one ResourceClaimTemplate, and then from another one,
    whose name is then taken."""
    names: list[str] = []

    def is_replaced(templates: list[Json]) -> bool:
        return len(templates) == 1 and templates[0]["metadata"]["name"] not in names

    for checkpoint in ("llama-3.1-8b", "llama-3.1-405b-fp8"):
        user.apply(inference("claims", checkpoint))
        user.wait_ready("claims", timeout=SLOW)
        (template,) = user.admin.wait_items("resourceclaimtemplates", is_replaced, timeout=SLOW)
        names = [template["metadata"]["name"]]
    user.admin.delete("infd", "claims")
    user.admin.wait_gone("resourceclaimtemplates", names[0], timeout=SLOW)
    stranger: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": names[0]},
        "spec": {"spec": template["spec"]["spec"]},
    }
    user.admin.apply([stranger])
    user.apply(inference("claims", "llama-3.1-405b-fp8"))
    user.wait("claims", _is_taken_by("ResourceClaimTemplate"), timeout=SLOW)
    user.admin.delete("infd", "claims")
    user.admin.delete("resourceclaimtemplates", names[0])


def download_weights(user: User, hub: HubServer) -> None:
    """A Job fills the cache of an object on a bound claim, is not needed any more, and then meets a
    name that is taken."""
    hub.add_repo(CACHED, {"config.json": CONFIG, **SHARDS})
    source: Json = {"huggingFace": {"repo": CACHED}}
    cache: Json = {"persistentVolumeClaim": {"claimName": CLAIM}}
    with_cache = inference(
        "downloads", model={"source": source, "cache": cache}, workload=dict(TINY)
    )
    user.apply(with_cache)
    user.wait_ready("downloads", timeout=SLOW)
    (job,) = user.children("jobs", "downloads")
    name = job["metadata"]["name"]
    user.apply(inference("downloads", model={"source": source}, workload=dict(TINY)))
    user.admin.wait_gone("jobs", name, timeout=SLOW)
    template = {"spec": {"containers": [STRANGE], "restartPolicy": "Never"}}
    stranger: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    user.admin.apply([{**stranger, "spec": {"suspend": True, "template": template}}])
    user.apply(with_cache)
    user.wait("downloads", _is_taken_by("Job"), timeout=SLOW)
    user.admin.delete("infd", "downloads")
    user.admin.delete("jobs", name)


def _is_taken_by(kind: str) -> Predicate:
    """A predicate on a status: an object of this kind has the name of a child. Until they are
    collected, the children of a former object have their names, too."""

    def holds(status: Json) -> bool:
        accepted = condition(status, "Accepted")
        is_taken = accepted.get("reason") == "NameConflict"
        return is_taken and str(accepted.get("message")).startswith(f"{kind} ")

    return holds


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
    user.wait("moves", runs_on("nvidia-h100-sxm-80gb"), timeout=SLOW)
    user.apply(inference("fails", "llama-3.1-8b", behaviour="crash-loop"))
    user.wait("fails", has("Ready", "False", "CrashLooping"), timeout=SLOW)
    go_back(user)
    gated = {"huggingFace": {"repo": "acme/gated", "tokenSecretRef": {"name": "hf"}}}
    user.apply(inference("gated", model={"source": gated}, workload=TINY))
    user.wait("gated", has("Accepted", "False"), timeout=SLOW)
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
            timeout=SLOW,
            why="the operator to remember what was measured",
        )
        user.admin.delete("infd", f"learns-{many}")


def _speaks_of(accelerator: str, config_map: Json) -> bool:
    entries = (config_map.get("data") or {}).values()
    return any(f"accelerator: {accelerator}\n" in entry for entry in entries)
