"""The claims that the operator renders, on a real scheduler: safe where other devices are, too."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.harness.admin import Admin
from tests.support.fleets.dra_objects import (
    H100,
    MI300X,
    device_class,
    dra_node,
    gpu_slice,
    old_amd_device,
    raw_slice,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "render"
FOREIGN = {"name": "gpu-0", "attributes": {"colour": {"string": "blue"}}}
"""A device without any attribute of the selectors: a missing key would abort the scheduler."""


@pytest.fixture
def apply(admin: Admin) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Applies cluster-scoped objects, and deletes them afterwards: no other test may have its pods
    on these nodes, or its claims allocated from these slices."""
    applied: list[tuple[str, str]] = []

    def apply_one(body: dict[str, Any]) -> None:
        admin.apply(body)
        applied.append((body["kind"], body["metadata"]["name"]))

    yield apply_one
    for kind, name in reversed(applied):
        admin.delete(kind, name)


@pytest.mark.parametrize(
    ("case", "kind", "driver", "device"),
    [
        ("dra-on-h100", H100, "gpu.nvidia.com", None),
        ("dra-on-mi300x", MI300X, "gpu.amd.com", None),
        ("dra-on-mi300x", MI300X, "gpu.amd.com", old_amd_device),
    ],
    ids=["NVIDIA", "AMD", "AMD of 2025"],
)
def test_a_rendered_claim_is_allocated_from_the_devices_of_one_node(
    case: str,
    kind: dict[str, Any],
    driver: str,
    device: Any,
    admin: Admin,
    namespace: str,
    apply: Callable[[dict[str, Any]], None],
) -> None:
    name = f"{namespace}-gpus"
    template, *_ = yaml.safe_load_all((GOLDEN / f"{case}.output.yaml").read_text(encoding="utf-8"))
    template["metadata"] = {"name": "claims", "namespace": namespace}
    if device is old_amd_device:  # states no NUMA node, so its pool asks for none
        del template["spec"]["spec"]["devices"]["constraints"]
    for node in (name, f"{namespace}-a-foreign"):
        body = dra_node(node)
        body["status"]["allocatable"]["pods"] = "110"
        apply(body)
        admin.patch("Node", node, {"status": body["status"]}, subresource="status")
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    apply(device_class(driver) | {"spec": {"selectors": [selector]}})
    apply(raw_slice(f"{namespace}-a-foreign", [FOREIGN], driver=driver))
    apply(gpu_slice(name, kind, device=device))
    admin.apply(template)
    admin.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": namespace},
            "spec": {
                "containers": [
                    {"name": "vllm", "image": "x", "resources": {"claims": [{"name": "gpus"}]}}
                ],
                "tolerations": [{"operator": "Exists"}],
                "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "claims"}],
            },
        }
    )

    def allocated() -> list[dict[str, Any]] | None:
        claims = admin.items("ResourceClaim", namespace)
        results = [
            result
            for claim in claims
            for result in (claim.get("status") or {})
            .get("allocation", {})
            .get("devices", {})
            .get("results", [])
        ]
        return results or None

    results = admin.until(
        "an allocation",
        allocated,
        describe=lambda: admin.describe("Pod", "p", namespace),
    )
    wanted = template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"]
    assert len(results) == wanted
    assert {(result["driver"], result["pool"]) for result in results} == {(driver, name)}
