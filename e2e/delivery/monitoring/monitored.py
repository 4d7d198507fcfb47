"""A Prometheus that watches two replicas of the operator and the models that they placed.

All is real but two things. Pods of the harness have no address that answers, so each scrape is led
to the process that stands in the pod's place. And alerts wait for seconds instead of minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from e2e.doubles.vllm_metrics import VllmMetrics
from e2e.harness.admin import SLOW, Admin, condition
from e2e.harness.operator_process import NAMESPACE, ROOT, OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.models import OWN_IMAGE, inference
from e2e.nodes.behaviours import KEY, LOG_KEY
from e2e.nodes.fleet import apply_fleet, load_fleet
from e2e.programs.prometheus import Prometheus
from e2e.programs.prometheus_operator import PrometheusOperator, crds

FOLDER = ROOT / "manifests" / "monitoring"
LEADER, STANDBY = "tonnage-0", "tonnage-1"
PLACED = ("llama-70b", "llama-8b")
_ON_L40S = {"accelerators": ["l40s"]}
_FOLLOWS_LOAD = {"maxReplicas": 1, "targets": {"waitingRequests": 10}}
_REFUSING_ADDRESS = "127.0.0.1:1"  # refuses connections, as a vLLM that still loads

OUT_OF_MEMORY = inference(
    "out-of-memory",
    "llama-3.1-8b",
    engine={"vllm": {"image": OWN_IMAGE}},
    template={
        "metadata": {
            "labels": {KEY: "out-of-memory"},
            "annotations": {LOG_KEY: "kv-space-over-memory"},
        }
    },
)
"""It dies of memory, and its words leave no other plan to try."""

_SERVES = inference("goes-back", "llama-3.1-8b", placement=_ON_L40S)
_DOES_NOT_COME_UP = inference(
    "goes-back",
    "llama-3.1-8b",
    placement=_ON_L40S,
    rollout={"progressDeadline": "5s"},
    engine={"vllm": {"image": OWN_IMAGE}},
    behaviour="image-pull-failure",
)

OBJECTS = {
    "llama-70b": (inference("llama-70b"), "ReplicasReady"),
    "llama-8b": (inference("llama-8b", "llama-3.1-8b", placement=_ON_L40S), "ReplicasReady"),
    "goes-back": (_DOES_NOT_COME_UP, "RolledBack"),
    "too-large": (inference("too-large", placement=_ON_L40S, replicas=9), "InsufficientGPUs"),
    "no-model": (
        inference("no-model", model={"source": {"configMap": {"name": "nowhere"}}}),
        "ModelNotFound",
    ),
    "out-of-memory": (OUT_OF_MEMORY, "OutOfMemory"),
    **{
        name: (inference(name, "llama-3.1-8b", behaviour=name), reason)
        for name, reason in (
            ("crash-loop", "CrashLooping"),
            ("image-pull-failure", "ImagePullFailed"),
        )
    },
}
"""Each with the reason of its Ready: what serves, has no place, is refused, fails at its start."""

SERVED_BEFORE = {"goes-back": _SERVES}
"""What was applied before, and served."""


@dataclass(frozen=True, slots=True)
class Monitored:
    """The parts of it; `rules` are as the Prometheus Operator wrote them."""

    admin: Admin
    namespace: str
    prometheus: Prometheus
    operators: Mapping[str, OperatorProcess]
    rules: Json


@contextmanager
def monitored(stack: Stack, admin: Admin, folder: Path) -> Iterator[Monitored]:
    """Everything at work and scraped at least twice, once before and once after requests."""
    with ExitStack() as ends:
        namespace = ends.enter_context(admin.fresh_namespace("chat"))
        prometheus = Prometheus(folder / "prometheus")
        ends.callback(prometheus.close)
        vllm = ends.enter_context(VllmMetrics())
        apply_fleet(stack.access, load_fleet("mixed"), prune=True)  # before pods are on its nodes
        operators = _start_operators(stack, admin, folder, prometheus.url, ends)
        _apply_objects(admin, ends)
        configuration, rules = _configure(admin, folder, ends)
        _await_objects(admin)
        addresses = {name: process.address for name, process in operators.items()}
        prometheus.start(
            _led_to(configuration, admin.kubeconfig, vllm.address, addresses),
            {"rules.yaml": _hurried(rules)},
        )
        monitored_models = Monitored(admin, namespace, prometheus, operators, rules)
        _await_scrapes(monitored_models)
        vllm.answer_requests()
        _look_again(admin)
        _follow_load(admin)
        yield monitored_models


def _start_operators(
    stack: Stack, admin: Admin, folder: Path, prometheus_url: str, ends: ExitStack
) -> dict[str, OperatorProcess]:
    """A leader and a standby, each with a pod that has the labels and ports of the shipped one."""
    template = _shipped_deployment(admin)["spec"]["template"]
    operators = {}
    for name in (LEADER, STANDBY):
        process = OperatorProcess(
            stack, folder / name, environment={"TONNAGE_PROMETHEUS_URL": prometheus_url}
        )
        process.start()
        ends.callback(process.close)
        operators[name] = process
        if name == LEADER:
            admin.until("the first operator to lead", lambda: operators[LEADER].leads, timeout=SLOW)
        admin.apply(_pod_in_place_of(name, template))
        ends.callback(admin.delete, "pods", name, NAMESPACE, timeout=None)
    return operators


def _shipped_deployment(admin: Admin) -> Json:
    documents = yaml.safe_load_all(admin.kubectl("kustomize", str(ROOT / "manifests" / "base")))
    deployment: Json = next(one for one in documents if one["kind"] == "Deployment")
    return deployment


def _pod_in_place_of(name: str, template: Json) -> Json:
    spec = {key: value for key, value in template["spec"].items() if key != "priorityClassName"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": name, "namespace": NAMESPACE},
        "spec": {**spec, "tolerations": [{"operator": "Exists"}]},
    }


def _apply_objects(admin: Admin, ends: ExitStack) -> None:
    ends.callback(_await_no_pods, admin)  # which hold the GPUs of the tests that come next
    for name, (manifest, _) in OBJECTS.items():
        ends.callback(admin.delete, "infd", name, timeout=None)
        if name in SERVED_BEFORE:
            admin.apply(SERVED_BEFORE[name])
            served = partial(_is_ready_because, "ReplicasReady")
            admin.wait_for("infd", name, served, timeout=SLOW)
        admin.apply(manifest)
        if name in (*PLACED, *SERVED_BEFORE):  # before one comes that would take all GPUs there are
            _await_object(admin, name)


def _await_objects(admin: Admin) -> None:
    for name in OBJECTS:
        _await_object(admin, name)


def _await_object(admin: Admin, name: str) -> None:
    _, reason = OBJECTS[name]
    admin.wait_for("infd", name, partial(_is_ready_because, reason), timeout=SLOW)


def _await_no_pods(admin: Admin) -> None:
    admin.until("the pods of all models to be gone", lambda: not _models_pods(admin), timeout=SLOW)


def _models_pods(admin: Admin) -> list[Json]:
    return admin.items("pods", selector="app.kubernetes.io/managed-by=tonnage")


def _is_ready_because(reason: str, model: Json) -> bool:
    conditions = (model.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["reason"] == reason for one in conditions)


def _configure(admin: Admin, folder: Path, ends: ExitStack) -> tuple[Json, Json]:
    """The shipped folder, given to the Prometheus Operator, and what it made of it."""
    ends.enter_context(crds(admin))
    namespace = ends.enter_context(_second_namespace(admin))
    shipped = list(yaml.safe_load_all(admin.kubectl("kustomize", str(FOLDER))))
    admin.apply(shipped)
    for one in shipped:
        metadata = one["metadata"]
        ends.callback(
            admin.delete, one["kind"], metadata["name"], metadata["namespace"], timeout=None
        )
    operator = PrometheusOperator(admin, namespace, folder / "prometheus-operator")
    ends.callback(operator.close)
    operator.start()
    return operator.configuration(jobs=2), operator.rules()


@contextmanager
def _second_namespace(admin: Admin) -> Iterator[str]:
    """One more namespace, while the admin goes on to work in its own."""
    before = admin.namespace
    with admin.fresh_namespace("monitoring") as name:
        admin.namespace = before
        yield name


def _led_to(configuration: Json, kubeconfig: Path, vllm: str, operators: Mapping[str, str]) -> Json:
    """The same jobs, with the address of the API server and of what replaces each pod."""
    detours = [
        _detour("__meta_kubernetes_pod_ready", "true", vllm),
        _detour("__meta_kubernetes_pod_ready", "false", _REFUSING_ADDRESS),
        *(_detour("__meta_kubernetes_pod_name", name, to) for name, to in operators.items()),
    ]
    jobs = [
        {
            **job,
            "kubernetes_sd_configs": [
                {**discovery, "kubeconfig_file": str(kubeconfig)}
                for discovery in job["kubernetes_sd_configs"]
            ],
            "relabel_configs": [*job["relabel_configs"], *detours],
        }
        for job in configuration["scrape_configs"]
    ]
    return {**configuration, "scrape_configs": jobs}


def _detour(label: str, value: str, address: str) -> Json:
    return {
        "source_labels": [label],
        "regex": value,
        "target_label": "__address__",
        "replacement": address,
    }


def _hurried(rules: Json) -> Json:
    """The same rules; whatever has to last for minutes has to last for seconds."""
    groups = [
        {
            **group,
            "rules": [{**rule, "for": "3s"} if "for" in rule else rule for rule in group["rules"]],
        }
        for group in rules["groups"]
    ]
    return {"groups": groups}


def _await_scrapes(monitored_models: Monitored) -> None:
    """Until both operators and all ready models were scraped."""
    monitored_models.admin.until(
        "the operators and the ready models to be scraped",
        lambda: _is_all_scraped(monitored_models),
        timeout=SLOW,
        describe=lambda: str(monitored_models.prometheus.targets()),
    )
    monitored_models.admin.until(
        "the leader to have compared a list with what its watches reported",
        lambda: monitored_models.prometheus.query("tonnage_watch_missed_changes_total"),
        timeout=SLOW,
    )


def _is_all_scraped(monitored_models: Monitored) -> bool:
    """Whether both operators and the models that are ready now were scraped. A pod may end
    meanwhile, such as one of a plan that was rolled back."""
    wanted = {*monitored_models.operators, *_ready_pods(monitored_models.admin)}
    return wanted <= set(_scraped(monitored_models.prometheus))


def _look_again(admin: Admin) -> None:
    """The operator asks Prometheus whenever it looks at an object; else at the next resync."""
    for name in PLACED:
        admin.patch("infd", name, {"metadata": {"labels": {"looked-at": "again"}}})


def _follow_load(admin: Admin) -> None:
    """Not before Prometheus answers: one that is not there yet is left alone for a while."""
    admin.patch("infd", "llama-8b", {"spec": {"scaling": _FOLLOWS_LOAD}})


def _ready_pods(admin: Admin) -> list[str]:
    return [pod["metadata"]["name"] for pod in _models_pods(admin) if condition("Ready")(pod)]


def _scraped(prometheus: Prometheus) -> Iterable[str]:
    return (one["metric"]["pod"] for one in prometheus.query("up == 1"))
