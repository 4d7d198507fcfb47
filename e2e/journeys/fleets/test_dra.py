"""GPUs by Dynamic Resource Allocation: real claims, of ResourceSlices as drivers publish them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.crowd import create_at_once, objects, runs, sixty_run
from e2e.journeys.pools import await_pool, counts, shown
from e2e.journeys.user import User, candidate, condition, container, has, runs_on
from e2e.models import inference

AMD, NVIDIA = "gpu.amd.com", "gpu.nvidia.com"
MI300X, H100 = "amd-mi300x-dra", "nvidia-h100-sxm-80gb"
BOTH: Json = {
    "groups": [
        {"name": "mi300x", "accelerator": "mi300x", "draDriver": "current"},
        {"name": "h100", "accelerator": "h100-sxm-80gb"},
    ]
}
"""AMD by a DRA driver and NVIDIA by a device plugin: 8 GPUs each."""

Device = tuple[str, str, str]


def by_driver(count: int = 1, *, gpus: int = 8, release: str = "current") -> Json:
    """Nodes of MI300X whose GPUs this release of the driver publishes."""
    group = {"name": "mi300x", "accelerator": "mi300x", "draDriver": release}
    return {"groups": [group | {"count": count, "gpusPerNode": gpus}]}


def allocated(user: User) -> list[Device]:
    """The devices that claims of the namespace hold: driver, pool and name of each."""
    return [
        (result["driver"], result["pool"], result["device"])
        for claim in user.admin.items("resourceclaims")
        for result in claim.get("status", {})
        .get("allocation", {})
        .get("devices", {})
        .get("results", [])
    ]


def uids(pods: Iterable[Json]) -> set[str]:
    """The identities of pods."""
    return {pod["metadata"]["uid"] for pod in pods}


def slice_of(user: User, node: str, driver: str = AMD) -> Json:
    """The ResourceSlice of a node, as it can be applied again."""
    body = user.admin.get("resourceslices", f"{node}-{driver}")
    assert body is not None
    metadata = {key: body["metadata"][key] for key in ("name", "labels")}
    return {**body, "metadata": metadata}


def withdraw(user: User, slice_body: Json) -> None:
    """The driver withdraws a ResourceSlice."""
    user.admin.delete("resourceslices", slice_body["metadata"]["name"])


def await_counts(user: User, expected: tuple[int, ...]) -> None:
    """Wait for the GPUs of the pool: total, allocatable, free, most free on one node."""
    await_pool(
        user.admin, MI300X, lambda status: counts(status) == expected, why=f"{expected} GPUs"
    )


def test_a_model_runs_by_claims_on_amd_and_by_a_device_plugin_on_nvidia(
    fleet: UseFleet, user: User
) -> None:
    fleet(BOTH)
    user.apply(inference("llama", placement={"accelerators": ["mi300x"]}))
    user.wait("llama", runs_on(MI300X))
    (pod,) = user.children("pods", "llama")
    gpus = user.status("llama")["placements"][0]["tensorParallelSize"]
    devices = allocated(user)
    assert [device[:2] for device in devices] == [(AMD, pod["spec"]["nodeName"])] * gpus
    (template,) = user.children("resourceclaimtemplates", "llama")
    (deployment,) = user.children("deployments", "llama")
    (of_pod,) = deployment["spec"]["template"]["spec"]["resourceClaims"]
    assert of_pod["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert not any("gpu" in name for name in container(deployment)["resources"].get("limits", {}))
    assert candidate(user.status("llama"), "h100-sxm-80gb")["verdict"] == "Rejected"
    await_counts(user, (8, 8, 8 - gpus, 8 - gpus))

    user.apply(inference("llama", placement={"accelerators": ["h100-sxm-80gb"]}))
    user.wait("llama", runs_on(H100))
    (deployment,) = user.children("deployments", "llama")
    assert "nvidia.com/gpu" in container(deployment)["resources"]["limits"]
    user.admin.wait_items("resourceclaimtemplates", lambda items: not items)
    await_counts(user, (8, 8, 8, 8))
    user.admin.until("no device to be allocated", lambda: not allocated(user))
    user.await_quiet()


def test_a_withdrawn_slice_takes_its_gpus_and_leaves_the_replicas_that_run(
    fleet: UseFleet, user: User
) -> None:
    fleet(by_driver(2))
    user.apply(inference("llama"))
    user.wait_ready("llama")
    (pod,) = user.children("pods", "llama")
    node = pod["spec"]["nodeName"]
    other = next(name for name in ("mi300x-0", "mi300x-1") if name != node)
    kept = {name: slice_of(user, name) for name in (node, other)}
    withdraw(user, kept[other])
    await_pool(user.admin, MI300X, lambda status: counts(status)[0] == 8, why="a node less")
    withdraw(user, kept[node])
    user.admin.until("the pool to be gone", lambda: counts(shown(user.admin, MI300X))[1] <= 0)
    user.apply(inference("second"))
    user.wait("second", has("Placed", "False"))
    user.await_quiet()
    assert uids(user.children("pods", "llama")) == uids([pod])
    status = user.status("llama")
    assert condition(status, "Available")["status"] == "True"
    assert status["readyReplicas"] == 1
    assert "it has no nodes; those that run there stay" in condition(status, "Placed")["message"]
    user.admin.apply(kept.values())
    user.wait_ready("second")
    assert uids(user.children("pods", "llama")) == uids([pod])


def test_a_tainted_device_is_counted_and_given_to_no_pod(fleet: UseFleet, user: User) -> None:
    fleet(by_driver(gpus=2))
    await_counts(user, (2, 2, 2, 2))
    body = slice_of(user, "mi300x-0")
    sound, broken = body["spec"]["devices"]
    taint = {"key": "gpu.amd.com/unhealthy", "effect": "NoSchedule"}
    devices = [sound, broken | {"taints": [taint]}]
    user.admin.apply({**body, "spec": body["spec"] | {"devices": devices}})
    await_counts(user, (2, 1, 1, 1))
    for name in ("first", "second"):
        user.apply(inference(name, "llama-3.1-8b"))
    user.wait_ready("first")
    user.wait("second", has("Placed", "False", "InsufficientGPUs"))
    assert allocated(user) == [(AMD, "mi300x-0", sound["name"])]
    user.admin.apply(body)
    user.wait_ready("second")
    assert sorted(allocated(user)) == [
        (AMD, "mi300x-0", device["name"]) for device in (sound, broken)
    ]


def test_a_new_release_of_the_driver_replaces_no_pod_and_serves_new_ones(
    fleet: UseFleet, user: User
) -> None:
    fleet(by_driver(release="previous"))
    user.apply(inference("old", "llama-3.1-8b"))
    user.wait_ready("old")
    before = uids(user.children("pods", "old"))
    fleet(by_driver())
    user.apply(inference("new", "llama-3.1-8b"))
    user.wait_ready("new")
    user.apply(inference("old", "llama-3.1-8b", replicas=2))
    user.wait("old", lambda status: status.get("readyReplicas") == 2)
    user.await_quiet()
    assert before < uids(user.children("pods", "old"))
    assert len(set(allocated(user))) == 3


def test_a_generation_of_slices_counts_once_it_is_complete(fleet: UseFleet, user: User) -> None:
    fleet(by_driver())
    await_counts(user, (8, 8, 8, 8))
    old = slice_of(user, "mi300x-0")

    def of_new_generation(number: int, devices: list[Any]) -> Json:
        pool = {"name": "mi300x-0", "generation": 2, "resourceSliceCount": 2}
        metadata = old["metadata"] | {"name": f"mi300x-0-second-{number}"}
        return {
            **old,
            "metadata": metadata,
            "spec": old["spec"] | {"pool": pool, "devices": devices},
        }

    first, second = (of_new_generation(at, old["spec"]["devices"][at::2]) for at in (0, 1))
    user.admin.apply(first)
    user.admin.until("no usable GPU", lambda: counts(shown(user.admin, MI300X))[1] <= 0)
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait("llama", has("Placed", "False"))
    user.admin.apply(second)
    user.wait_ready("llama")
    await_pool(user.admin, MI300X, lambda status: counts(status)[0] == 8, why="each GPU once")
    withdraw(user, old)
    user.await_quiet()
    assert len(allocated(user)) == 1


def test_a_rollback_starts_pods_by_the_claims_of_the_plan_that_served(
    fleet: UseFleet, user: User
) -> None:
    fleet(by_driver())
    user.apply(inference("llama", "llama-3.1-405b-fp8", rollout={"strategy": "Recreate"}))
    user.wait_ready("llama")
    (before,) = user.children("resourceclaimtemplates", "llama")
    held = len(allocated(user))
    rollout = {"strategy": "Recreate", "progressDeadline": "2s"}
    user.apply(inference("llama", rollout=rollout, behaviour="image-pull-failure"))
    user.wait("llama", has("Degraded", "True", "RolledBack"))
    user.wait("llama", has("Available"))
    (deployment,) = user.children("deployments", "llama")
    (claim,) = deployment["spec"]["template"]["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == before["metadata"]["name"]
    user.admin.until("its claims alone", lambda: len(allocated(user)) == held)


def test_sixty_of_a_hundred_objects_run_and_no_device_is_allocated_twice(
    fleet: UseFleet, user: User
) -> None:
    fleet(by_driver(12, gpus=5))
    create_at_once(user, [inference(f"llama-{at:02}", "llama-3.1-8b") for at in range(100)])
    user.admin.wait_items("infd", sixty_run, timeout=600, why="sixty of a hundred to run")
    check_each_device_is_allocated_once(user)
    gone = sorted(model["metadata"]["name"] for model in objects(user) if runs(model))[:4]
    for name in gone:
        user.admin.delete("infd", name, timeout=None)
    user.admin.wait_items("infd", sixty_run, timeout=300, why="the free GPUs to be used again")
    check_each_device_is_allocated_once(user)


def check_each_device_is_allocated_once(user: User) -> None:
    """All sixty devices, and no pod that waits for one."""
    assert all(pod["spec"].get("nodeName") for pod in user.admin.items("pods"))
    held = Counter(allocated(user))
    assert (len(held), set(held.values())) == (60, {1})
