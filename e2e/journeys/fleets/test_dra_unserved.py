"""A cluster whose API server does not serve resource.k8s.io: nothing is missed, nothing asked."""

from __future__ import annotations

from pathlib import Path

from e2e.harness.operator_process import USER
from e2e.harness.servers import Options
from e2e.journeys.own_cluster import user_of_own_cluster
from e2e.journeys.pools import await_pool, counts
from e2e.journeys.user import User, has, runs_on
from e2e.models import inference

H100 = "nvidia-h100-sxm-80gb"
OLD_CLUSTER = Options(unserved=("resource.k8s.io/v1",))


def bind(user: User, name: str, node: str) -> None:
    """Bind the pod of an object, as the scheduler of Kubernetes before 1.34 does."""
    (pod,) = user.admin.wait_items(
        "pods", lambda pods: len(pods) == 1, why=f"the pod of {name} to exist"
    )
    path = f"/api/v1/namespaces/{user.namespace}/pods/{pod['metadata']['name']}/binding"
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod["metadata"]["name"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    user.admin.rest.request("POST", path, body)


def asked(user: User, since: int = 0) -> list[str]:
    """The operator's requests for kinds of Dynamic Resource Allocation."""
    addresses = (event["requestURI"] for event in user.admin.requests(USER, since=since))
    return [address for address in addresses if "resource.k8s.io" in address]


def test_device_plugins_serve_and_no_request_goes_to_the_missing_group(tmp_path: Path) -> None:
    fleet = {"groups": [{"name": "h100", "accelerator": "h100-sxm-80gb"}]}
    with user_of_own_cluster(tmp_path, OLD_CLUSTER, fleet) as user:
        user.apply(inference("llama"))
        user.wait("llama", has("Placed"))
        bind(user, "llama", "h100-0")
        user.wait("llama", runs_on(H100))
        await_pool(user.admin, H100, lambda status: counts(status)[0] == 8, why="the pool")
        user.await_quiet()
        assert asked(user), "the operator asks for the kinds once, at its start"
        mark = user.admin.audit_mark()
        user.apply(inference("second"))
        user.wait("second", lambda status: status.get("candidates"))
        user.await_quiet()
        assert asked(user, mark) == []
