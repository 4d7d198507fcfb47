"""The harness itself, on real servers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.doubles.watch_recorder import WatchRecorder
from e2e.harness.admin import WRITES, Admin, condition
from e2e.harness.failure import HarnessError
from e2e.harness.fixtures import refuse_foreign_context
from e2e.harness.processes import ProcessId
from e2e.harness.rest import ApiError, Json
from e2e.harness.stack import Stack, down, service_account_kubeconfig, up
from e2e.nodes.behaviours import KEY
from e2e.nodes.fleet import apply_fleet, delete_fleet, load_fleet

SLOW = 180.0  # seconds for what takes some of them on a machine without other work


def deployment(name: str, *, behaviour: str = "", by: str = "labels", **template: Any) -> Json:
    """A Deployment of one vLLM-like container."""
    metadata: Json = {"labels": {"app": name}, "annotations": template.pop("annotations", {})}
    if behaviour:
        metadata[by][KEY] = behaviour
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.32.0",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 5, **template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": metadata, "spec": spec},
        },
    }


def container(pod: Json) -> Json:
    """The status of the first container, empty while there is none."""
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    return dict(statuses[0])


def waiting(pod: Json) -> str:
    """The reason for which the container waits."""
    return str(container(pod).get("state", {}).get("waiting", {}).get("reason", ""))


def only_pod(admin: Admin, predicate: Any, why: str, timeout: float = SLOW) -> Json:
    pods = admin.wait_items(
        "pods", lambda pods: len(pods) == 1 and predicate(pods[0]), why=why, timeout=timeout
    )
    return pods[0]


@pytest.fixture(scope="module")
def nodes(control_plane: Stack) -> None:
    apply_fleet(control_plane.access, load_fleet("tiny"))


# Stacks


def test_two_stacks_run_independently(control_plane: Stack, tmp_path: Path) -> None:
    second = up(tmp_path / "second", owner_pid=os.getpid())
    processes = second.processes
    assert second.server != control_plane.server
    assert all(process.alive() for process in processes.values())
    down(second.root)
    assert not [name for name, process in processes.items() if process.alive()]
    assert all(process.alive() for process in control_plane.processes.values())


def test_a_stack_ends_with_its_owner(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as owner:
        try:
            stack = up(tmp_path / "owned", owner_pid=owner.pid, lifetime=600)
            processes = stack.processes
        finally:
            owner.kill()
    assert [name for name, process in processes.items() if not process.wait_gone(60)] == []
    assert stack.state["message"] == "the owner is gone"


def test_the_servers_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    stack = up(tmp_path / "killed", owner_pid=os.getpid())
    processes = stack.processes
    os.kill(stack.supervisor.pid, 9)
    assert [name for name, process in processes.items() if not process.wait_gone(60)] == []


def test_a_second_up_in_the_same_folder_is_refused(control_plane: Stack) -> None:
    with pytest.raises(HarnessError, match=r"runs in .* already"):
        up(control_plane.root)


def test_the_command_line_reports_errors(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "e2e.harness.stack", "down", "--dir", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "holds no stack" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_foreign_context_is_refused(control_plane: Stack, tmp_path: Path) -> None:
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://10.0.0.1:6443"
    foreign = tmp_path / "kubeconfig"
    foreign.write_text(yaml.safe_dump(config))
    with pytest.raises(HarnessError, match="did not start itself"):
        refuse_foreign_context(foreign, control_plane)


def test_plain_kubectl_works(admin: Admin, control_plane: Stack) -> None:
    version = yaml.safe_load(admin.kubectl("version", "-o", "yaml"))
    assert version["serverVersion"]["gitVersion"].startswith("v1.35.")
    env = {"KUBECONFIG": str(control_plane.kubeconfig), "PATH": os.environ["PATH"]}
    answer = subprocess.run(
        [str(control_plane.kubectl), "get", "--raw", "/readyz"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "ok"


# Access


def test_a_service_account_has_only_its_granted_permissions(
    admin: Admin, control_plane: Stack, namespace: str, tmp_path: Path
) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    rbac = "rbac.authorization.k8s.io/v1"
    meta = {"name": "reader"}
    admin.apply(
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
            {"apiVersion": rbac, "kind": "Role", "metadata": meta, "rules": [rule]},
            {
                "apiVersion": rbac,
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": role,
                "subjects": [subject],
            },
        ]
    )
    mark = admin.audit_mark()
    path = service_account_kubeconfig(control_plane, namespace, "reader", tmp_path / "reader")
    reader = Admin(path, control_plane.kubectl)
    reader.namespace = namespace
    admin.until("the role to count", lambda: _allowed(reader), timeout=SLOW)
    assert reader.items("pods") == []
    with pytest.raises(ApiError) as refused:
        reader.items("secrets")
    assert refused.value.code == 403
    user = f"system:serviceaccount:{namespace}:reader"
    assert {
        event["objectRef"]["resource"] for event in admin.requests(user, since=mark, verbs=["list"])
    }
    assert admin.requests(user, since=mark, verbs=WRITES) == []


def _allowed(reader: Admin) -> bool:
    try:
        reader.items("pods")
    except ApiError as error:
        if error.code != 403:
            raise
        return False
    return True


# Nodes


def test_the_mixed_fleet_is_ready_with_its_gpus(control_plane: Stack, admin: Admin) -> None:
    mixed = load_fleet("mixed")
    apply_fleet(control_plane.access, mixed)
    nodes = {node["metadata"]["name"]: node for node in admin.items("nodes")}
    want = {"mi300x": 4, "h100": 4, "h200": 2, "mi355x": 1, "l40s": 2}
    for group, count in want.items():
        for number in range(count):
            node = nodes[f"{group}-{number}"]
            resource = "amd.com/gpu" if group.startswith("mi") else "nvidia.com/gpu"
            assert node["status"]["allocatable"][resource] == ("4" if group == "l40s" else "8")
            assert condition("Ready")(node)
    delete_fleet(control_plane.access, mixed)


@pytest.mark.usefixtures("nodes")  # where all nodes are lost, the controller evicts no pod
def test_a_node_that_is_not_ready_is_tainted_and_stays_so(
    control_plane: Stack, admin: Admin
) -> None:
    fleet = {"groups": [{"name": "lost", "accelerator": "mi300x", "ready": False}]}
    apply_fleet(control_plane.access, fleet)
    tainted = admin.wait_for("nodes", "lost-0", lambda node: "NoExecute" in str(node["spec"]))
    assert condition("Ready", "False")(tainted)
    admin.patch("nodes", "lost-0", {"metadata": {"labels": {"e2e.tonnage.dev/ready": None}}})
    admin.wait_for("nodes", "lost-0", condition("Ready"), timeout=SLOW)
    delete_fleet(control_plane.access, fleet)


@pytest.mark.usefixtures("nodes")
def test_the_pods_of_a_node_that_comes_back_are_ready_again(
    control_plane: Stack, admin: Admin, namespace: str
) -> None:
    fleet = {"groups": [{"name": "shaky", "labels": {"shaky": "yes"}}]}
    apply_fleet(control_plane.access, fleet)
    admin.apply(deployment("vllm", nodeSelector={"shaky": "yes"}))
    only_pod(admin, condition("Ready"), "a ready pod")
    lost = {"metadata": {"labels": {"e2e.tonnage.dev/ready": "unknown"}}}
    admin.patch("nodes", "shaky-0", lost)
    only_pod(admin, condition("Ready", "False"), "the pod of a silent node to be unready")
    node = admin.wait_for("nodes", "shaky-0", lambda node: "unreachable" in str(node["spec"]))
    assert condition("Ready", "Unknown")(node)
    admin.patch("nodes", "shaky-0", {"metadata": {"labels": {"e2e.tonnage.dev/ready": None}}})
    only_pod(admin, condition("Ready"), "the pod to be ready again")
    delete_fleet(control_plane.access, fleet)


def test_a_resource_that_a_fleet_no_longer_has_is_removed(
    control_plane: Stack, admin: Admin
) -> None:
    group: Json = {"name": "changing", "accelerator": "mi300x"}
    apply_fleet(control_plane.access, {"groups": [group]})
    group["partition"] = {"compute": "cpx", "memory": "nps4", "strategy": "mixed"}
    apply_fleet(control_plane.access, {"groups": [group]})
    node = admin.get("nodes", "changing-0")
    assert node is not None
    assert "amd.com/gpu" not in node["status"]["allocatable"]
    assert node["status"]["allocatable"]["amd.com/cpx_nps4"] == "64"
    delete_fleet(control_plane.access, {"groups": [group]})


def test_the_pods_of_a_deleted_node_go_away(
    control_plane: Stack, admin: Admin, namespace: str
) -> None:
    fleet = {"groups": [{"name": "doomed", "labels": {"doomed": "yes"}}]}
    apply_fleet(control_plane.access, fleet)
    admin.apply(deployment("vllm", nodeSelector={"doomed": "yes"}))
    pod = only_pod(admin, condition("Ready"), "a ready pod")
    delete_fleet(control_plane.access, fleet)
    admin.wait_gone("pods", pod["metadata"]["name"], timeout=300)


# Pods


@pytest.mark.usefixtures("nodes")
def test_a_healthy_pod_runs_first_and_is_ready_later(admin: Admin, namespace: str) -> None:
    with WatchRecorder(admin, "pods", None, namespace) as recorder:
        admin.apply(deployment("vllm", annotations={"e2e.tonnage.dev/ready-after": "1500ms"}))
        ready = only_pod(admin, condition("Ready"), "a ready pod")
    running = (pod for pod in recorder.versions if pod["status"]["phase"] == "Running")
    assert not condition("Ready")(next(running))
    assert container(ready)["ready"]
    assert container(ready)["restartCount"] == 0
    log = admin.logs(ready["metadata"]["name"])
    assert "Application startup complete." in log
    assert "Traceback" not in log
    assert len(admin.logs(ready["metadata"]["name"], tailLines=3).splitlines()) == 3


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("by", ["labels", "annotations"])
def test_out_of_memory_at_start_crashes_with_the_words_of_vllm(
    admin: Admin, namespace: str, by: str
) -> None:
    admin.apply(deployment("vllm", behaviour="out-of-memory", by=by))
    pod = only_pod(
        admin,
        lambda pod: waiting(pod) == "CrashLoopBackOff" and container(pod)["restartCount"] >= 2,
        "a pod that crashed three times",
    )
    last = container(pod)["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (1, "Error")
    # The message has the end of the log only, and the cause stands before it: as in reality.
    assert "See root cause above" in last["message"]
    assert "max seq len" not in last["message"]
    assert len(last["message"].encode()) <= 2048
    assert not condition("Ready")(pod)
    assert "restarting failed container=vllm" in container(pod)["state"]["waiting"]["message"]
    name = pod["metadata"]["name"]
    words = "To serve at least one request with the model's max seq len (1000000)"
    assert words in admin.logs(name, previous=True)
    assert words not in admin.logs(name, previous=True, limitBytes=2000)
    # A container that has started again meanwhile has not come to them yet.
    admin.until("the words in its log", lambda: words in admin.logs(name), timeout=SLOW)


@pytest.mark.usefixtures("nodes")
def test_a_fault_ends_when_its_label_is_removed(admin: Admin, namespace: str) -> None:
    admin.apply(deployment("vllm", behaviour="crash-loop"))
    only_pod(admin, lambda pod: waiting(pod) == "CrashLoopBackOff", "a crash loop")
    admin.apply(deployment("vllm"))
    admin.wait_for("deployments", "vllm", condition("Available"), timeout=SLOW)
    pod = only_pod(admin, condition("Ready"), "only the new pod, ready")
    assert container(pod)["restartCount"] == 0


@pytest.mark.usefixtures("nodes")
def test_a_killed_engine_ends_with_exit_code_zero(admin: Admin, namespace: str) -> None:
    admin.apply(deployment("vllm", behaviour="exit-zero"))
    only_pod(admin, condition("Ready"), "a pod that is ready before its engine dies")
    pod = only_pod(admin, lambda pod: container(pod).get("restartCount", 0) >= 1, "a restart")
    last = container(pod)["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (0, "Completed")
    assert "message" not in last
    assert "EngineDeadError" in admin.logs(pod["metadata"]["name"], previous=True)
    pod = only_pod(admin, lambda pod: waiting(pod) == "CrashLoopBackOff", "a crash loop")
    assert not condition("Ready")(pod)


@pytest.mark.usefixtures("nodes")
def test_an_image_that_cannot_be_pulled_is_reported(admin: Admin, namespace: str) -> None:
    admin.apply(deployment("vllm", behaviour="image-pull-failure"))
    only_pod(admin, lambda pod: waiting(pod) == "ErrImagePull", "the first error")
    pod = only_pod(admin, lambda pod: waiting(pod) == "ImagePullBackOff", "the back-off")
    state = container(pod)["state"]["waiting"]
    assert state["message"].startswith('Back-off pulling image "vllm/vllm-openai:v0.32.0"')
    assert pod["status"]["phase"] == "Pending"
    with pytest.raises(ApiError, match="trying and failing to pull image") as refused:
        admin.logs(pod["metadata"]["name"])
    assert refused.value.code == 400


@pytest.mark.usefixtures("nodes")
def test_never_ready_runs_and_slow_start_takes_the_configured_time(
    admin: Admin, namespace: str
) -> None:
    admin.apply(deployment("never", behaviour="never-ready"))
    running = only_pod(admin, lambda pod: pod["status"]["phase"] == "Running", "a running pod")
    slow = deployment(
        "slow", behaviour="slow-start", annotations={"e2e.tonnage.dev/ready-after": "3s"}
    )
    admin.apply(slow)
    admin.wait_for("deployments", "slow", condition("Available"), timeout=SLOW)
    never = admin.get("pods", running["metadata"]["name"])
    assert never is not None
    assert not condition("Ready")(never)
    with pytest.raises(ApiError, match="previous terminated container"):
        admin.logs(never["metadata"]["name"], previous=True)


@pytest.mark.usefixtures("nodes")
def test_a_deleted_pod_is_removed_within_its_grace_period(admin: Admin, namespace: str) -> None:
    slow_stop = {"e2e.tonnage.dev/stop-after": "3600s"}
    admin.apply(deployment("vllm", annotations=slow_stop, terminationGracePeriodSeconds=1))
    pod = only_pod(admin, condition("Ready"), "a ready pod")
    admin.delete("deployments", "vllm", timeout=None)
    admin.wait_gone("pods", pod["metadata"]["name"], timeout=SLOW)


@pytest.mark.usefixtures("nodes")
def test_the_garbage_collector_removes_children_of_a_deleted_object(
    admin: Admin, namespace: str
) -> None:
    owner = admin.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})[0]
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    meta = {"name": "owned", "ownerReferences": [reference]}
    admin.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    admin.delete("configmaps", "owner")
    admin.wait_gone("configmaps", "owned")


def test_a_wait_that_times_out_shows_the_last_state(admin: Admin, namespace: str) -> None:
    admin.apply(deployment("vllm", nodeSelector={"no": "such-node"}))
    with pytest.raises(HarnessError, match=r"waited 0\.5 s for (?s:.*)replicas: 1"):
        admin.wait_for("deploy", "vllm", condition("Available"), timeout=0.5)


def test_a_process_is_identified_by_its_start_time() -> None:
    own = ProcessId.of(os.getpid())
    assert own is not None
    assert own.alive()
    assert not ProcessId(own.pid, own.started - 1).alive()
