"""What two placements of one object are made of: `spread.output.yaml`."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.in_memory.cluster import H100, MI300X
from tests.support.in_memory.serving import served
from tonnage.api.names import ANNOTATION_PLACEMENT
from tonnage.kube.kinds import DEPLOYMENTS, SERVICES

FILE = Path(__file__).parent / "spread.output.yaml"


def test_two_deployments_and_three_services(
    check_golden: Callable[[Path, list[dict[str, Any]]], None],
) -> None:
    check_golden(FILE, asyncio.run(_children()))


async def _children() -> list[dict[str, Any]]:
    """Services whole; of Deployments what differs between placements, but for the pods."""
    two = ({**MI300X, "gpusPerNode": 2}, {**H100, "gpusPerNode": 2})
    cluster = await served(*two, replicas=4, placement={"spread": {"policy": "WhenShort"}})
    children = [*cluster.api.objects(DEPLOYMENTS), *cluster.api.objects(SERVICES)]
    return [_essentials(body) for body in children]


def _essentials(body: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: body["metadata"][key] for key in ("name", "labels")}
    place = body["metadata"]["annotations"].get(ANNOTATION_PLACEMENT)
    if place is not None:
        metadata["annotations"] = {ANNOTATION_PLACEMENT: place}
    spec = dict(body["spec"])
    template = spec.pop("template", None)
    if template is not None:
        container = template["spec"]["containers"][0]
        spec["template"] = {
            "metadata": template["metadata"],
            "image": container["image"],
            "limits": container["resources"]["limits"],
        }
    return {"kind": body["kind"], "metadata": metadata, "spec": spec}
