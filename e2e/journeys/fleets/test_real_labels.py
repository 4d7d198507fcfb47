"""Label sets of real nodes: clouds, labellers, partitions and contradictions."""

from __future__ import annotations

from collections import Counter

from e2e.harness.admin import Admin
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.stack import Stack
from e2e.nodes.descriptions import as_played
from e2e.nodes.fleet import apply_nodes
from tests.support.fleets.node_fixtures import NodeFixture, node_fixtures

UNKNOWN = "unknown"


def test_every_node_counts_for_its_own_accelerator_or_for_none(
    control_plane: Stack, operator: OperatorProcess, installed: Admin
) -> None:
    # Other causes that make a node unusable are tested elsewhere.
    fixtures = [one for one in node_fixtures() if "node" not in one.expect]
    nodes = [as_played(one.body, f"{_as_name(one.file)}-{one.name}") for one in fixtures]
    apply_nodes(control_plane.access, nodes, prune=True)
    expected = Counter(_accelerator(one) for one in fixtures if "no_gpus" not in one.expect)
    installed.until(
        "each machine in a pool of its own accelerator",
        lambda: _machines(installed) == expected,
        timeout=180,
        describe=lambda: (
            f"missing {expected - _machines(installed)}, too many {_machines(installed) - expected}"
        ),
    )


def _as_name(file: str) -> str:
    return file.replace("_", "-")


def _accelerator(fixture: NodeFixture) -> str:
    return UNKNOWN if "unrecognised" in fixture.expect else str(fixture.expect["accelerator"])


def _machines(admin: Admin) -> Counter[str]:
    """How many nodes the pools have, by their accelerator."""
    machines: Counter[str] = Counter()
    for pool in admin.items("apool"):
        status = pool.get("status") or {}
        machines[status.get("accelerator", UNKNOWN)] += status.get("nodes", 0)
    return machines
