"""The LeaderWorkerSet of a replica on several nodes, as rendered, changed and read."""

from typing import Any

import pytest

from tests.golden.render.inputs import make_deployment, make_option, make_spec
from tonnage.api.inference import Rollout
from tonnage.engines.inputs import Owner, SurgeMode
from tonnage.placement.model import Option
from tonnage.workloads.interface import ServingPods
from tonnage.workloads.leaderworkerset import LeaderWorkerSetKind
from tonnage.workloads.registry import workload_kind_of

KIND = LeaderWorkerSetKind()
OWNER_LABEL, WORKER_LABEL = "tonnage.dev/inferencedeployment", "tonnage.dev/worker-of"
TEMPLATE = "tonnage.dev/template"
INTERCONNECT = {
    "resource": "rdma/ib",
    "count": 2,
    "annotations": {"k8s.v1.cni.cncf.io/networks": "rail-0"},
    "env": [{"name": "NCCL_IB_HCA", "value": "mlx5"}],
}


def option_on(nodes: int = 2, **interconnect: Any) -> Option:
    declared = {
        "nodeSelector": {"team": "a"},
        "interconnect": {**INTERCONNECT, **interconnect},
    }
    return make_option("h100-sxm-80gb", tensor=8, pipeline=nodes, nodes=nodes, declared=declared)


def render(option: Option | None = None, **how: Any) -> dict[str, Any]:
    return make_deployment(how.pop("spec", None), option or option_on(), **how)


def templates_of(body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The templates of leader and workers."""
    templates = body["spec"]["leaderWorkerTemplate"]
    return templates["leaderTemplate"], templates["workerTemplate"]


def container_of(template: dict[str, Any]) -> dict[str, Any]:
    (container,) = template["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def test_a_replica_on_one_node_is_a_pod_of_a_deployment() -> None:
    assert make_deployment()["kind"] == "Deployment"


def test_a_replica_on_several_nodes_is_a_group_of_as_many_pods() -> None:
    body = render(option_on(nodes=3), replicas=4)
    assert (body["apiVersion"], body["kind"]) == (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
    )
    templates = body["spec"]["leaderWorkerTemplate"]
    assert (body["spec"]["replicas"], templates["size"]) == (4, 3)
    assert templates["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert body["spec"]["startupPolicy"] == "LeaderCreated"
    assert workload_kind_of(body).kind.kind == "LeaderWorkerSet"


def test_all_pods_run_the_same_command_and_workers_no_server() -> None:
    leader, worker = map(container_of, templates_of(render()))
    assert worker["args"] == [*leader["args"], "--headless"]
    for argument in (
        "--tensor-parallel-size=8",
        "--pipeline-parallel-size=2",
        "--nnodes=2",
        "--node-rank=$(LWS_WORKER_INDEX)",
        "--master-addr=$(LWS_LEADER_ADDRESS)",
        "--distributed-executor-backend=mp",
    ):
        assert argument in leader["args"]
    server = {"ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle"}
    assert server <= leader.keys()
    assert not server & worker.keys()
    assert leader["resources"] == worker["resources"]


def test_only_leaders_have_the_label_that_services_select() -> None:
    leader, worker = (template["metadata"]["labels"] for template in templates_of(render()))
    assert leader[OWNER_LABEL] == worker[WORKER_LABEL] == "llama-70b"
    assert OWNER_LABEL not in worker
    assert WORKER_LABEL not in leader
    assert leader[TEMPLATE] == worker[TEMPLATE]


def test_each_pod_has_its_part_of_the_gpus_and_what_the_network_needs() -> None:
    for template in templates_of(render()):
        container = container_of(template)
        limits = container["resources"]["limits"]
        assert limits == {"nvidia.com/gpu": "8", "rdma/ib": "2"}
        assert container["securityContext"]["capabilities"] == {
            "drop": ["ALL"],
            "add": ["IPC_LOCK"],
        }
        environment = {one["name"]: one for one in container["env"]}
        assert environment["NCCL_IB_HCA"]["value"] == "mlx5"
        assert environment["NCCL_SOCKET_IFNAME"]["value"] == "eth0"
        assert environment["VLLM_HOST_IP"]["valueFrom"]["fieldRef"] == {"fieldPath": "status.podIP"}
        assert template["metadata"]["annotations"] == INTERCONNECT["annotations"]
        seconds = {
            toleration["key"]: toleration.get("tolerationSeconds")
            for toleration in template["spec"]["tolerations"]
        }
        assert seconds["node.kubernetes.io/unreachable"] == 60


def test_the_user_decides_how_long_pods_stay_on_a_silent_node() -> None:
    toleration = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    spec = make_spec(podTemplate={"spec": {"tolerations": [toleration]}})
    leader, _ = templates_of(render(spec=spec))
    of_silent = [one for one in leader["spec"]["tolerations"] if one["key"] == toleration["key"]]
    assert of_silent == [toleration]


def test_a_topology_key_keeps_the_pods_of_each_group_together() -> None:
    leader, worker = templates_of(render(option_on(topologyKey="example.com/rack")))
    assert leader["spec"]["affinity"] == worker["spec"]["affinity"]
    (term,) = leader["spec"]["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["topologyKey"] == "example.com/rack"
    assert term["matchLabelKeys"] == ["leaderworkerset.sigs.k8s.io/group-index"]
    assert "podAffinity" not in templates_of(render())[0]["spec"]["affinity"]


def test_kueue_reads_the_queue_of_the_set_and_not_of_its_pods() -> None:
    owner = Owner("chat", "llama-70b", "uid", queue="team")
    body = render(owner=owner)
    assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    for template in templates_of(body):
        assert "kueue.x-k8s.io/queue-name" not in template["metadata"]["labels"]


def test_names_are_short_enough_for_what_is_made_of_them() -> None:
    name = render(owner=Owner("chat", "a" * 60, "uid"))["metadata"]["name"]
    assert len(name) == 39
    assert render()["metadata"]["name"] == "llama-70b-h100-sxm-80gb-2nodes"


# The template


def test_the_template_is_that_of_the_leader_and_goes_back_in() -> None:
    body = render()
    template = KIND.template(body)
    assert TEMPLATE not in template["metadata"]["labels"]
    assert KIND.with_template(body, template) == body


def test_another_template_has_another_name_in_both_templates() -> None:
    body = render()
    template = KIND.template(body)
    metadata = {**template["metadata"], "annotations": {"a": "b"}}
    changed = KIND.with_template(body, {**template, "metadata": metadata})
    assert KIND.template_name(changed) != KIND.template_name(body)
    for template in templates_of(changed):
        assert template["metadata"]["annotations"] == {"a": "b"}
        assert template["metadata"]["labels"][TEMPLATE] == KIND.template_name(changed)


def test_without_its_templates_the_size_stays() -> None:
    assert KIND.without_template(render())["spec"]["leaderWorkerTemplate"] == {
        "size": 2,
        "restartPolicy": "RecreateGroupOnPodRestart",
    }


# Rollouts


@pytest.mark.parametrize("mode", SurgeMode)
def test_a_mode_is_read_back(mode: SurgeMode) -> None:
    rollout = Rollout()
    body = KIND.with_surge_mode(render(), mode, rollout)
    assert KIND.surge_mode(body, rollout) is mode
    assert KIND.surge_mode(KIND.with_pause(body, paused=True), rollout) is mode


def test_a_surge_begins_only_with_a_controller_that_ends_it() -> None:
    """The first status of v0.7.0 and v0.8.0, and that of v0.9.0."""
    body = render()
    assert KIND.surge_mode(body, Rollout()) is SurgeMode.ONE_BY_ONE
    assert not KIND.can_surge(body)
    assert not KIND.can_surge({**body, "status": {"replicas": 1, "readyReplicas": 1}})
    assert KIND.can_surge({**body, "status": {"replicas": 1, "observedGeneration": 1}})


@pytest.mark.parametrize(
    ("ready", "count", "want"),
    [
        ({"0", "1", "2"}, 2, 2),  # any of them may stop
        ({"1"}, 1, 2),  # group 0 is not ready, and would stay in place of group 1
        ({"1", "3"}, 1, 2),
        ({"1", "3"}, 2, 4),
        ({"0", "4"}, 2, 2),  # group 4 is of a surge
        ({"1"}, 3, 3),
        ({"1"}, 0, 0),
        (set(), 2, 2),
        ({"", "x", "-1", "9" * 20}, 1, 1),  # no leaders of it
    ],
)
def test_a_scale_down_keeps_ready_groups(ready: set[str], count: int, want: int) -> None:
    """The controller stops those with the highest indices."""
    body = render(replicas=4)
    pods = {f"{body['metadata']['name']}-{index}" for index in ready}
    assert KIND.replicas_to_keep(body, {*pods, "other-7"}, count) == want


def test_a_strategy_of_a_user_is_no_mode() -> None:
    body = render()
    body["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["maxUnavailable"] = 3
    assert KIND.surge_mode(body, Rollout()) is None


def test_a_pause_puts_all_groups_below_the_partition() -> None:
    body = render(replicas=4)
    assert not KIND.is_paused(body)
    paused = KIND.with_pause(body, paused=True)
    assert KIND.is_paused(paused)
    assert paused["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["partition"] == 4
    assert KIND.is_paused(KIND.with_pause(render(replicas=0), paused=True))
    assert not KIND.is_paused(KIND.with_pause(paused, paused=False))
    restored = {**paused, "spec": KIND.rendered_spec(paused)}
    assert not KIND.is_paused(restored)


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 20, "٣"])
def test_a_deadline_that_is_no_number_is_none(text: str) -> None:
    body = KIND.with_deadline(render(), 90)
    assert KIND.deadline_seconds(body) == 90
    body["metadata"]["annotations"]["tonnage.dev/progress-deadline-seconds"] = text
    assert KIND.deadline_seconds(body) is None


# Status

STATUS = {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        (ServingPods(existing=2, updated=2, ready=2, updated_ready=2), (2, 2, 2, True)),
        (ServingPods(existing=2, updated=0, ready=0, updated_ready=0), (2, 0, 0, False)),
        (ServingPods(existing=2, updated=0, ready=2, updated_ready=0), (2, 2, 0, False)),
        (ServingPods(existing=2, updated=2, ready=1, updated_ready=1), (2, 1, 2, False)),
        (ServingPods(existing=3, updated=2, ready=2, updated_ready=2), (3, 2, 2, False)),
        (ServingPods(existing=0, updated=0, ready=0, updated_ready=0), (0, 0, 0, False)),
        (None, (2, 2, 2, True)),
    ],
)
def test_a_status_may_be_older_than_the_pods(
    pods: ServingPods | None, want: tuple[int, int, int, bool]
) -> None:
    body = {**render(replicas=2), "status": STATUS}
    state = KIND.read_state(body, pods, is_observed=False)
    assert (state.existing, state.ready, state.updated, state.completed) == want
    assert state.observed == (pods is not None)


def test_a_group_is_ready_when_its_workers_are() -> None:
    """The controller counts a group as ready only with all of its pods."""
    body = {**render(replicas=2), "status": {**STATUS, "readyReplicas": 1}}
    state = KIND.read_state(body, ServingPods(2, 2, 2, 2), is_observed=True)
    assert state.ready == 1
