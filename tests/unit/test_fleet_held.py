"""Pods and the GPUs that they hold."""

from tonnage.fleet.held import HeldGpus
from tonnage.fleet.model import GpuPod

ONE = ("chat", "one")


def pod(uid: str, node: str | None, gpus: int = 1, owner: tuple[str, str] | None = ONE) -> GpuPod:
    return GpuPod(uid, node, {"nvidia.com/gpu": gpus}, owner, "h100")


def held_by(*pods: GpuPod) -> HeldGpus:
    held = HeldGpus()
    for one in pods:
        held.put(one)
    return held


def test_all_pods_on_a_node_hold_gpus_there() -> None:
    held = held_by(pod("a", "n0", 2), pod("b", "n0", 3, owner=None), pod("c", "n1"), pod("d", None))
    assert held.used("n0", "nvidia.com/gpu") == 5
    assert held.used("n0", "amd.com/gpu") == 0
    assert held.used("elsewhere", "nvidia.com/gpu") == 0


def test_a_pod_that_is_scheduled_holds_its_gpus_from_then_on() -> None:
    held = held_by(pod("a", None), pod("a", "n0"))
    assert held.used("n0", "nvidia.com/gpu") == 1
    assert [one.uid for one in held] == ["a"]


def test_an_owner_has_its_bound_pods_only() -> None:
    held = held_by(pod("a", "n0"), pod("b", None), pod("c", "n0", owner=("chat", "two")))
    assert [one.uid for one in held.of(ONE)] == ["a"]
    assert list(held.of(("chat", "nobody"))) == []


def test_a_pod_that_is_gone_holds_nothing() -> None:
    held = held_by(pod("a", "n0"))
    assert held.remove("a") == pod("a", "n0")
    assert held.remove("a") is None
    assert (list(held), list(held.on("n0")), list(held.of(ONE))) == ([], [], [])
