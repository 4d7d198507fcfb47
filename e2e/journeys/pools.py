"""AcceleratorPools: those that a platform team declares, and the status of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from e2e.harness.admin import WAIT_SECONDS, Admin
from e2e.harness.rest import Json
from e2e.nodes.descriptions import READY_LABEL

AMD_LABEL, NVIDIA_LABEL = "amd.com/gpu.device-id", "nvidia.com/gpu.product"
MI300X = {AMD_LABEL: "74a1"}
H100 = {NVIDIA_LABEL: "NVIDIA-H100-80GB-HBM3"}
"""Labels that select the nodes with one accelerator, as a platform team writes them."""


def declared(name: str, node_selector: dict[str, str], **spec: Any) -> Json:
    """An AcceleratorPool as a platform team writes it."""
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "AcceleratorPool",
        "metadata": {"name": name},
        "spec": {"nodeSelector": node_selector, **spec},
    }


def shown(admin: Admin, name: str) -> Json:
    """What the cluster shows of a pool, empty while there is none of that name."""
    pool = admin.get("apool", name) or {}
    status: Json = pool.get("status") or {}
    return status


def discovered(admin: Admin) -> dict[str, Json]:
    """The status of each discovered pool, by name."""
    pools = admin.items("apool", selector="tonnage.dev/discovered=true")
    return {pool["metadata"]["name"]: pool.get("status") or {} for pool in pools}


def unusable(admin: Admin) -> dict[str, str]:
    """Why nodes are no capacity, by the nodes' names, as all pools tell it."""
    entries = [
        entry
        for pool in admin.items("apool")
        for entry in (pool.get("status") or {}).get("unusableNodes") or []
    ]
    return {name: why for name, _, why in (entry.partition(": ") for entry in entries)}


def counts(status: Json) -> tuple[int, ...]:
    """A pool's GPUs: total, allocatable, free, and the most that are free on one node."""
    gpus = status.get("gpus") or {}
    return tuple(
        gpus.get(name, -1) for name in ("total", "allocatable", "free", "largestFreeBlock")
    )


def await_pool(
    admin: Admin,
    name: str,
    predicate: Callable[[Json], object],
    *,
    why: str,
    timeout: float = WAIT_SECONDS,
) -> Json:
    """Wait until what is shown of a pool satisfies the predicate, and return it."""

    def probe() -> Json | None:
        status = shown(admin, name)
        return status if status and predicate(status) else None

    return admin.until(why, probe, timeout=timeout, describe=lambda: admin.describe("apool", name))


def silence(admin: Admin, nodes: Iterable[str]) -> None:
    """The kubelets of these nodes say nothing any more, as after a power cut."""
    for name in nodes:
        admin.patch("nodes", name, {"metadata": {"labels": {READY_LABEL: "unknown"}}})


def restore(admin: Admin, nodes: Iterable[str]) -> None:
    """The kubelets of these nodes speak again."""
    for name in nodes:
        admin.patch("nodes", name, {"metadata": {"labels": {READY_LABEL: None}}})
