"""Marks each test by its path, so that `pytest -m` selects what to run, orders and distributes the
files, and fixes the width of the output."""

import os
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

_ROOT: Final = Path(__file__).parent
_MARKER_OF_PATH: Final = {
    "tests/property": "property",
    "tests/faults": "faults",
    "tests/integration": "cluster",
    "e2e": "cluster",
    "tests/golden": "slow",
    "tests/unit/catalog/test_rules.py": "slow",
    "tests/unit/checkpoint/volume": "slow",
    "tests/unit/cli/commands": "slow",
    "tests/unit/cli/plan": "slow",
    "tests/unit/cli/test_main.py": "slow",
    "tests/unit/kube/test_client.py": "slow",
    "tests/unit/manager": "slow",
    "tests/unit/project/test_accuracy.py": "slow",
    "tests/unit/project/test_manifests.py": "slow",
    "tests/unit/reconcile/integrations": "slow",
    "tests/unit/reconcile/rollout": "slow",
    "tests/unit/reconcile/scheduling": "slow",
    "tests/unit/reconcile/status/test_pods_that_do_not_come_up.py": "slow",
    "tests/unit/reconcile/test_autoscaling.py": "slow",
    "tests/unit/reconcile/test_calibration.py": "slow",
    "tests/unit/reconcile/test_calibration_of_spread.py": "slow",
}
"""The unit tests that take more than some two seconds together are slow, but for the rules of the
repository, which any change can break."""

_ORDER: Final = (
    "tests/faults",
    "e2e/journeys/pod_starts",
    "e2e/delivery/scaling",
    "e2e/delivery/availability/test_api_faults.py",
    "tests/integration",
    "e2e/basics",
    "e2e/delivery",
    "e2e/journeys/multi_node/test_several_nodes.py",
    "e2e/journeys/fleets/test_dra_histories.py",
    "e2e/journeys/models/test_node_disk.py",
    "e2e/journeys/operation",
    "e2e/journeys/rollouts",
)
"""The files that wait for minutes start first, next to others that need the processor; the long
ones of the rest start before the short ones. So no worker is left with a long file at the end."""

_ON_EMPTY_CLUSTER: Final = frozenset(
    {
        "e2e/delivery/availability/test_api_faults.py",
        "e2e/delivery/availability/test_high_availability.py",
        "e2e/delivery/gitops/test_argo_cd_operator.py",
        "e2e/delivery/install/test_crd_evolution.py",
        "e2e/delivery/install/test_helm.py",
    }
)
"""Files that need a cluster without Tonnage. One worker runs all of them: a second control plane on
each worker would take processor time from all, also while it waits for its next test."""


def pytest_configure() -> None:
    """Let tests see the same output in every terminal: xdist sets COLUMNS for its workers."""
    os.environ.pop("COLUMNS", None)


class _Files(LoadFileScheduling):
    """Gives a worker one file after the other, and all that need an empty cluster to the same."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "an empty cluster" if file in _ON_EMPTY_CLUSTER else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Distribute files with `--dist=loadfile`."""
    return _Files(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the marker of the test's path, and order the files."""
    for item in items:
        path = item.path.relative_to(_ROOT)
        for folder, marker in _MARKER_OF_PATH.items():
            if path.is_relative_to(folder):
                item.add_marker(marker)
    items.sort(key=_turn_of)


def _turn_of(item: pytest.Item) -> int:
    """The place of the test's file in _ORDER; all other files come later, as they are collected."""
    path = item.path.relative_to(_ROOT)
    turns = (turn for turn, part in enumerate(_ORDER) if path.is_relative_to(part))
    return next(turns, len(_ORDER))
