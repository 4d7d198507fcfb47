"""A fleet of many pools: each is judged, and the status stays within the limit of etcd."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from e2e.harness.rest import Json
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import declared
from e2e.journeys.user import User, has
from e2e.models import inference

_KINDS = {"mi300x": (80, 8), "h100-sxm-80gb": (60, 8), "l4": (60, 1)}
"""How many pools, of one node each, and with how many GPUs."""

_MAX_STATUS_BYTES = 64 * 1024


def test_two_hundred_pools_are_judged_and_the_status_stays_small(
    fleet: UseFleet, declare: Declare, user: User
) -> None:
    groups: list[Json] = [
        {"name": f"{kind}-{number}", "accelerator": kind, "gpusPerNode": gpus}
        | {"labels": {"rack": f"{kind}-{number}"}}
        for kind, (count, gpus) in _KINDS.items()
        for number in range(count)
    ]
    fleet({"groups": groups})
    pools = [
        declared(
            # As long as a name may be: the worst case for the size of the status.
            f"{group['name']}-{'of-the-platform-team-' * 3}"[:60].strip("-"),
            group["labels"],
            costPerGPUHour=f"{number % 7 + 1}.50",
        )
        for number, group in enumerate(groups)
    ]
    with ThreadPoolExecutor(16) as at_once:
        list(at_once.map(declare, pools))
    user.apply(inference("llama"))
    status = user.wait(
        "llama",
        lambda status: has("Ready")(status) and judged(status) == len(pools),
        why="a verdict on each pool",
        timeout=240,
    )
    assert len(json.dumps(status).encode()) < _MAX_STATUS_BYTES
    listed, omitted = status["candidates"], status["omittedCandidates"]
    assert {entry["verdict"] for entry in listed} >= {"Chosen", "Feasible"}
    assert omitted["WeightsDoNotFit"] > 0
    assert all(entry["reason"] and entry["message"] for entry in listed)
    assert status["placements"][0]["accelerator"] == "mi300x"


def judged(status: Json) -> int:
    """Pools that a status lists, and those that it only counts by reason."""
    omitted: dict[str, int] = status.get("omittedCandidates") or {}
    return len(status["candidates"]) + sum(omitted.values())
