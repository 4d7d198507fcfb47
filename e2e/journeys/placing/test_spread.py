"""One model on MI300X and H100 at once: scaling up, scaling down, and the loss of a pool."""

from __future__ import annotations

import pytest

from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.pools import await_pool, counts
from e2e.journeys.user import User, has
from e2e.models import inference
from e2e.nodes.fleet import apply_fleet

MI300X: Json = {"name": "mi300x", "accelerator": "mi300x", "gpusPerNode": 2}
H100: Json = {"name": "h100", "accelerator": "h100-sxm-80gb", "gpusPerNode": 3}
L40S: Json = {"name": "l40s", "accelerator": "l40s", "gpusPerNode": 4}
MI300X_POOL, H100_POOL, L40S_POOL = "amd-mi300x", "nvidia-h100-sxm-80gb", "nvidia-l40s"


@pytest.fixture
def two_vendors(fleet: UseFleet) -> None:
    """Two GPUs of the one, three of the other; the other is dearer."""
    fleet({"groups": [MI300X, H100]})


def spread(replicas: int) -> Json:
    placement = {"spread": {"policy": "WhenShort"}, "fallback": {"after": "2s"}}
    workload = {"maxModelLen": 8192}
    return inference(
        "llama", "llama-3.1-8b", replicas=replicas, placement=placement, workload=workload
    )


def by_pool(status: Json) -> dict[str, int]:
    return {
        placement["pool"]: placement["replicas"] for placement in status.get("placements") or []
    }


def on(status: Json) -> dict[str, int]:
    return by_pool(status) if has("Ready")(status) else {}


def await_split(user: User, want: dict[str, int], why: str) -> Json:
    """Wait until all replicas are ready, so many in each pool."""
    return user.wait("llama", lambda status: on(status) == want, timeout=180, why=why)


def pods_of(user: User, accelerator: str) -> set[str]:
    return {name for name in user.pods("llama") if accelerator in name}


def endpoints(user: User, service: str) -> set[str]:
    """Pods behind a Service, ready or not, as its EndpointSlices have them."""
    selector = f"kubernetes.io/service-name={service}"
    slices = user.admin.items("endpointslices", selector=selector)
    return {
        endpoint["targetRef"]["name"]
        for endpoint_slice in slices
        for endpoint in endpoint_slice["endpoints"] or []
    }


def test_one_object_runs_on_two_vendors_and_releases_the_more_expensive_first(
    control_plane: Stack, two_vendors: None, user: User
) -> None:
    user.apply(spread(4))
    status = await_split(user, {MI300X_POOL: 2, H100_POOL: 2}, "both pools to carry it")
    assert [placement["weight"] for placement in status["placements"]] == [50, 50]
    everything = user.pods("llama")
    user.admin.until(
        "one Service over all", lambda: endpoints(user, "llama") == everything, timeout=90
    )
    amd = pods_of(user, "mi300x")
    user.admin.until("one over each", lambda: endpoints(user, "llama-mi300x") == amd, timeout=90)

    apply_fleet(control_plane.access, {"groups": [{**MI300X, "name": "mi300x-more"}]})
    await_pool(
        user.admin,
        MI300X_POOL,
        lambda pool: counts(pool)[1] == 4,
        why="the pool to grow",
        timeout=90,
    )
    user.await_quiet()
    assert user.pods("llama") == everything

    user.apply(spread(3))
    await_split(user, {MI300X_POOL: 2, H100_POOL: 1}, "one H100 to be given back")
    assert pods_of(user, "mi300x") == amd
    user.apply(spread(2))
    await_split(user, {MI300X_POOL: 2}, "H100 to be given back")
    # The garbage collector deletes the pod on H100 after its Deployment.
    user.admin.until("only AMD to be left", lambda: user.pods("llama") == amd, timeout=90)
    user.admin.until("one Service to be left", lambda: services(user) == {"llama"}, timeout=90)


def services(user: User) -> set[str]:
    return {service["metadata"]["name"] for service in user.children("services", "llama")}


def test_a_lost_placement_is_reported_and_replaced_once_gpus_are_free(
    control_plane: Stack, two_vendors: None, user: User
) -> None:
    user.apply(spread(4))
    await_split(user, {MI300X_POOL: 2, H100_POOL: 2}, "both pools to carry it")
    amd = pods_of(user, "mi300x")
    user.admin.delete("nodes", "h100-0")
    force = ("--force", "--grace-period=0", "--wait=false", "--ignore-not-found")
    for name in pods_of(user, "h100"):
        user.admin.kubectl("delete", "pod", name, *force, "-n", user.namespace)
    status = user.wait(
        "llama",
        has("Placed", "False", "InsufficientGPUs"),
        timeout=90,
        why="the loss to be reported",
    )
    assert "capacity for 2 of 4 replicas" in str(status["conditions"])
    assert has("Available")(status)
    apply_fleet(control_plane.access, {"groups": [L40S]})
    await_split(user, {MI300X_POOL: 2, L40S_POOL: 2}, "the share to go elsewhere")
    assert pods_of(user, "mi300x") == amd
