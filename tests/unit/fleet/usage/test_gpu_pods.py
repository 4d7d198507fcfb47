"""Pods, and what they hold on their nodes."""

from dataclasses import replace

from tonnage.fleet.model import BoundPod, GpuPod
from tonnage.fleet.resources import NOTHING, Resources
from tonnage.fleet.usage.gpu_pods import GpuPods

ONE = ("chat", "one")


def pod(uid: str, node: str | None, gpus: int = 1, owner: tuple[str, str] | None = ONE) -> GpuPod:
    return GpuPod(uid, node, {"nvidia.com/gpu": gpus}, owner, "h100")


def gpu_pods(*given: GpuPod) -> GpuPods:
    pods = GpuPods()
    for one in given:
        pods.put(one)
    return pods


def test_all_pods_on_a_node_hold_gpus_there() -> None:
    pods = gpu_pods(
        pod("a", "n0", 2), pod("b", "n0", 3, owner=None), pod("c", "n1"), pod("d", None)
    )
    assert pods.used("n0", "nvidia.com/gpu").gpus == 5
    assert pods.used("n0", "amd.com/gpu").gpus == 0
    assert pods.used("elsewhere", "nvidia.com/gpu").gpus == 0


def test_a_scheduled_pod_holds_its_gpus() -> None:
    pods = gpu_pods(pod("a", None), pod("a", "n0"))
    assert pods.used("n0", "nvidia.com/gpu").gpus == 1
    assert [one.uid for one in pods] == ["a"]


def test_an_owner_has_its_bound_pods_only() -> None:
    pods = gpu_pods(pod("a", "n0"), pod("b", None), pod("c", "n0", owner=("chat", "two")))
    assert [one.uid for one in pods.of(ONE)] == ["a"]
    assert list(pods.of(("chat", "unknown"))) == []


def test_a_removed_pod_holds_nothing() -> None:
    pods = gpu_pods(pod("a", "n0"))
    assert pods.remove("a") == pod("a", "n0")
    assert pods.remove("a") is None
    assert (list(pods), list(pods.on("n0")), list(pods.of(ONE))) == ([], [], [])


def test_pods_with_and_without_gpus_hold_cpu_and_memory() -> None:
    pods = gpu_pods(replace(pod("a", "n0", 2), others=Resources(0, 4000, 100)))
    web, agent = BoundPod("n0", Resources(0, 500, 10)), BoundPod("n0", Resources(0, 100, 1))
    for one in (web, web, agent):
        pods.add_other(one)
    assert pods.used("n0", "nvidia.com/gpu") == Resources(2, 5100, 121)
    assert list(pods.others()) == [BoundPod("n0", Resources(0, 1100, 21))]
    for one in (web, agent, web):
        pods.remove_other(one)
    pods.remove("a")
    assert (pods.used("n0", "nvidia.com/gpu"), list(pods.others())) == (NOTHING, [])
