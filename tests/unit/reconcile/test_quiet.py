"""Which changes restart no replica, which write no status, and which do."""

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import Behaviour, ready
from tests.support.in_memory.serving import SETTLED, served
from tonnage.kube.kinds import ACCELERATOR_POOLS, DEPLOYMENTS
from tonnage.kube.protocol import Object


def pool_of(name: str, **spec: object) -> Object:
    return {"metadata": {"name": name, "uid": name}, "spec": spec}


async def test_a_pool_declared_for_other_nodes_rolls_nothing() -> None:
    cluster = await served({**H100, "count": 2}, replicas=1)
    before = cluster.deployment("llama-h100-sxm-80gb")
    node = cluster.pods()[0]["spec"]["nodeName"]
    (other,) = {"h100-0", "h100-1"} - {node}
    body = pool_of("team", nodeSelector={"kubernetes.io/hostname": other})
    cluster.api.put(ACCELERATOR_POOLS, body)
    await cluster.resync()
    after = cluster.deployment("llama-h100-sxm-80gb")
    assert after["spec"]["template"] == before["spec"]["template"]
    cluster.api.remove(ACCELERATOR_POOLS, None, "team")
    await cluster.resync()
    assert (
        cluster.deployment("llama-h100-sxm-80gb")["spec"]["template"] == before["spec"]["template"]
    )
    assert cluster.conditions() == SETTLED


async def test_a_change_of_the_template_uses_the_current_labels_of_the_pool() -> None:
    cluster = await served({**H100, "count": 2}, replicas=1)
    node = cluster.pods()[0]["spec"]["nodeName"]
    (other,) = {"h100-0", "h100-1"} - {node}
    body = pool_of("team", nodeSelector={"kubernetes.io/hostname": other})
    cluster.api.put(ACCELERATOR_POOLS, body)
    cluster.apply("llama", spec_of(engine={"vllm": {"maxNumSeqs": 77}}))
    await cluster.settle()
    affinity = str(
        cluster.deployment("llama-h100-sxm-80gb")["spec"]["template"]["spec"]["affinity"]
    )
    assert "NotIn" in affinity
    assert cluster.conditions() == SETTLED


async def test_a_pod_without_a_node_for_its_old_labels_uses_the_current_ones() -> None:
    selector = {"matchLabels": {"tonnage.dev/discovered": "true"}}
    cluster = Cluster({**H100, "count": 2})
    body = pool_of("team", nodeSelector={"kubernetes.io/hostname": "h100-1"})
    cluster.api.put(ACCELERATOR_POOLS, body)
    cluster.apply("llama", spec_of(placement={"poolSelector": selector}))
    await cluster.settle()
    assert [pod["spec"]["nodeName"] for pod in cluster.pods()] == ["h100-0"]
    cluster.api.remove(ACCELERATOR_POOLS, None, "team")
    cluster.occupy("h100-0", 7, "nvidia.com/gpu")
    cluster.apply("llama", spec_of(replicas=2, placement={"poolSelector": selector}))
    await cluster.settle()
    assert "h100-1" in {pod["spec"]["nodeName"] for pod in cluster.pods()}
    assert cluster.conditions() == SETTLED


async def test_refused_pods_are_reported_with_the_message_of_the_refusal() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    await cluster.reconcile("llama")
    message = "is forbidden: exceeded quota: gpus"
    body = cluster.deployment("llama-mi300x")
    body["status"] = {
        "observedGeneration": body["metadata"]["generation"],
        "unavailableReplicas": 1,
        "conditions": [
            {
                "type": "ReplicaFailure",
                "status": "True",
                "reason": "FailedCreate",
                "message": f'pods "llama-x7k2p" {message}',
            }
        ],
    }
    cluster.api.put(DEPLOYMENTS, body)
    await cluster.reconcile("llama")
    assert cluster.conditions()["Ready"] == ("False", "ChildRefused")
    assert "its pods are forbidden: exceeded quota: gpus" in cluster.message("Ready")
    assert cluster.conditions()["Stalled"] == ("True", "ChildRefused")
    await cluster.settle()
    assert cluster.conditions() == SETTLED


def restarted(times: int, message: str, ending: str) -> Behaviour:
    def behave(pod: Object) -> Object:
        status = ready(pod)
        status["conditions"][1]["status"] = "False"
        waiting = {"reason": ending, "message": message}
        state = {"state": {"waiting": waiting}, "restartCount": times, "ready": False}
        if ending == "CrashLoopBackOff":
            state["lastState"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        status["containerStatuses"][0] |= state
        return status

    return behave


async def test_one_more_restart_writes_no_status() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    cluster.behaviours["llama"] = restarted(3, "back-off", "CrashLoopBackOff")
    await cluster.settle()
    before = cluster.status()
    assert cluster.conditions()["Ready"] == ("False", "ServerExited")
    cluster.behaviours["llama"] = restarted(4, "back-off", "CrashLoopBackOff")
    await cluster.settle()
    assert cluster.status() == before


async def test_a_retried_image_pull_writes_no_event() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    error = 'failed to pull and unpack image "x:v1": not found'
    cluster.behaviours["llama"] = restarted(0, error, "ErrImagePull")
    await cluster.settle()
    before = cluster.status()
    events = list(cluster.recorder.events)
    cluster.behaviours["llama"] = restarted(
        0, f'Back-off pulling image "x:v1": ErrImagePull: {error}', "ImagePullBackOff"
    )
    await cluster.settle()
    assert cluster.status() == before
    assert cluster.recorder.events == events
