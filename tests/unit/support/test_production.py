"""The doubles of a production cluster refuse, change and fail pods as Kubernetes does.

tests/integration/test_production.py holds the same table to a real control plane.
"""

from typing import Any

import pytest

from e2e.nodes.descriptions import render_nodes
from tests.support.api_server.fake_api import FakeApi
from tests.support.in_memory.cluster import MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import loading
from tests.support.production.admission import Admission, service_account
from tests.support.production.contract import (
    REFUSED,
    UNSCHEDULABLE,
    holder_of,
    pod_of,
    service_of,
)
from tests.support.production.kinds import ADMINISTERED, NAMESPACES
from tests.support.production.limit_ranges import limit_range
from tests.support.production.pod_faults import (
    evicted,
    secret_missing,
    unexpected_admission_error,
    volume_not_mounted,
)
from tests.support.production.quotas import resource_quota
from tests.support.production.scheduler import schedule_pods
from tests.support.production.webhooks import (
    adding_node_selector,
    adding_toleration,
    denying,
    rewriting_registry,
)
from tonnage.kube.kinds import DEPLOYMENTS, EVENTS, NODES, PODS, SERVICES
from tonnage.kube.protocol import ForbiddenError, InvalidError, Object

DEPLOYMENT = "llama-mi300x"


def server(*bodies: Object) -> FakeApi:
    api = FakeApi()
    api.admission = Admission()
    for body in bodies:
        api.put(ADMINISTERED[body["kind"]], body)
    return api


def conditions(body: Object) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in body["status"]["conditions"]}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_in_the_servers_words(case: str) -> None:
    refused = REFUSED[case]
    api = server(*refused.bodies)
    api.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": dict(refused.labels)}})
    body = service_of(NAMESPACE) if refused.kind == SERVICES else pod_of(NAMESPACE, refused.change)
    with pytest.raises(InvalidError if refused.is_invalid else ForbiddenError) as error:
        api.post(refused.kind, body, "controller")
    assert str(error.value) == refused.message.format(namespace=NAMESPACE)


@pytest.mark.parametrize("case", UNSCHEDULABLE)
def test_a_pod_that_fits_nowhere_has_the_schedulers_message(case: str) -> None:
    unschedulable = UNSCHEDULABLE[case]
    api = server(*unschedulable.bodies)
    for node in render_nodes({"groups": list(unschedulable.groups)}):
        api.put(NODES, node)
    if unschedulable.holder is not None:
        api.put(PODS, holder_of(NAMESPACE, unschedulable.holder))
    api.put(PODS, {**pod_of(NAMESPACE, unschedulable.change), "status": {}})
    schedule_pods(api)
    (condition,) = api.object(PODS, NAMESPACE, "tried")["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == unschedulable.message


async def test_a_deployment_says_why_its_pods_are_refused_and_goes_on_trying() -> None:
    cluster, quota = Cluster(MI300X), resource_quota({"pods": 2})
    cluster.administer(quota)
    cluster.apply("llama", spec_of(replicas=4))
    await cluster.settle()
    failure = conditions(cluster.deployment(DEPLOYMENT))["ReplicaFailure"]
    assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
    assert "exceeded quota: quota, requested: pods=1, used:" in failure["message"]
    assert len(cluster.pods()) == 2
    cluster.withdraw(quota)
    await cluster.settle()
    assert "ReplicaFailure" not in conditions(cluster.deployment(DEPLOYMENT))
    assert len(cluster.pods()) == 4


async def test_a_quota_refuses_the_operators_service() -> None:
    cluster = Cluster(MI300X)
    cluster.administer(resource_quota({"services": 0}))
    with pytest.raises(ForbiddenError, match=r"services=1, used: services=0, limited: services=0"):
        await cluster.api.create(SERVICES, service_of(NAMESPACE))
    assert cluster.api.objects(SERVICES) == []


async def test_an_account_that_is_made_lets_the_pods_come() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(template={"spec": {"serviceAccountName": "models"}}))
    await cluster.settle()
    assert cluster.pods() == []
    cluster.administer(service_account("models"))
    await cluster.settle()
    assert len(cluster.pods()) == 1


async def test_a_limit_range_fills_in_what_a_container_does_not_state() -> None:
    cluster = Cluster(MI300X)
    cluster.administer(limit_range(default={"ephemeral-storage": "5Gi"}))
    volume = {"name": "disk", "persistentVolumeClaim": {"claimName": "weights"}}
    mount = {"name": "disk", "mountPath": "/cache"}  # so that no disk of the node is requested
    template = {"spec": {"volumes": [volume], "volumeMounts": [mount]}}
    cluster.apply("llama", spec_of(template=template))
    await cluster.settle()
    (container,) = cluster.pods()[0]["spec"]["containers"]
    assert container["resources"]["limits"]["ephemeral-storage"] == "5Gi"
    assert container["resources"]["requests"]["ephemeral-storage"] == "5Gi"


async def test_webhooks_deny_and_change_what_is_stored() -> None:
    cluster = Cluster(MI300X)
    cluster.webhooks.append(denying("image is not signed"))
    cluster.webhooks.append(rewriting_registry("mirror.example.com", PODS))
    cluster.webhooks.append(adding_toleration("spot", PODS))
    cluster.apply("llama", spec_of())
    await cluster.settle()
    message = 'admission webhook "policy.example.com" denied the request: image is not signed'
    assert conditions(cluster.deployment(DEPLOYMENT))["ReplicaFailure"]["message"] == message
    del cluster.webhooks[0]
    await cluster.settle()
    (pod,) = cluster.pods()
    assert pod["spec"]["containers"][0]["image"].startswith("mirror.example.com/vllm/")
    assert {"key": "spot", "operator": "Exists"} in pod["spec"]["tolerations"]


async def test_what_a_webhook_changes_of_an_applied_object_changes_no_owner() -> None:
    cluster = Cluster(MI300X)
    cluster.webhooks.append(rewriting_registry("mirror.example.com", DEPLOYMENTS))
    cluster.apply("llama", spec_of())
    await cluster.reconcile("llama")
    template = cluster.deployment(DEPLOYMENT)["spec"]["template"]
    assert template["spec"]["containers"][0]["image"].startswith("mirror.example.com/vllm/")
    assert cluster.api.field_managers(DEPLOYMENTS, NAMESPACE, DEPLOYMENT) == {"tonnage"}


async def test_a_node_selector_that_a_webhook_adds_is_obeyed() -> None:
    cluster = Cluster(MI300X)
    cluster.webhooks.append(adding_node_selector("team", "chat"))
    cluster.apply("llama", spec_of())
    await cluster.settle()
    message = conditions(cluster.pods()[0])["PodScheduled"]["message"]
    assert message.startswith(
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    )


async def test_an_evicted_pod_stays_and_is_replaced() -> None:
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = loading
    cluster.apply("llama", spec_of())
    await cluster.settle()
    cluster.fail_pods("llama", evicted())
    await cluster.settle()
    statuses = [(pod["status"]["phase"], pod["status"].get("reason")) for pod in cluster.pods()]
    assert statuses == [("Failed", "Evicted"), ("Running", None)]


async def test_the_operators_watch_does_not_show_pods_that_have_ended() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    cluster.fail_pods("llama", unexpected_admission_error("amd.com/gpu"))
    await cluster.settle()
    names = {pod["metadata"]["name"] for pod in cluster.stores.owned(PODS, (NAMESPACE, "llama"))}
    assert len(cluster.pods()) == 2
    assert len(names) == 1


@pytest.mark.parametrize(
    ("behaviour", "waiting", "event"),
    [
        (volume_not_mounted("models", "not found"), "ContainerCreating", "FailedMount"),
        (secret_missing("hf"), "CreateContainerConfigError", "Failed"),
    ],
)
async def test_a_container_that_is_not_created_waits_and_has_an_event(
    behaviour: Any, waiting: str, event: str
) -> None:
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = behaviour
    cluster.apply("llama", spec_of())
    await cluster.settle()
    (pod,) = cluster.pods()
    (container,) = pod["status"]["containerStatuses"]
    assert (pod["status"]["phase"], container["state"]["waiting"]["reason"]) == ("Pending", waiting)
    (written,) = cluster.api.objects(EVENTS)
    assert (written["reason"], written["regarding"]["uid"]) == (event, pod["metadata"]["uid"])


async def test_pods_of_a_deleted_node_stay_where_their_collector_does_not_run() -> None:
    cluster = Cluster(MI300X)
    cluster.collects_orphans = False
    cluster.apply("llama", spec_of())
    await cluster.settle()
    cluster.leave("mi300x-0")
    await cluster.settle()
    (pod,) = cluster.pods()
    assert conditions(pod)["Ready"]["status"] == "True"
