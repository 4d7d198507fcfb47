"""Marks each test by its path, so that `pytest -m` selects what to run, orders the journeys, and
fixes the width of the output."""

import os
from pathlib import Path
from typing import Final

import pytest

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

_JOURNEYS: Final = "e2e/journeys"
_LONG_JOURNEYS: Final = (
    "e2e/journeys/pod_starts",
    "e2e/journeys/models/test_node_disk.py",
    "e2e/journeys/operation",
    "e2e/journeys/rollouts",
)
"""Files that wait for minutes. They start before the other journeys, so that no worker is left with
one of them after all others have ended."""


def pytest_configure() -> None:
    """Let tests see the same output in every terminal: xdist sets COLUMNS for its workers."""
    os.environ.pop("COLUMNS", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the marker of the test's path, and order the journeys."""
    for item in items:
        path = item.path.relative_to(_ROOT)
        for folder, marker in _MARKER_OF_PATH.items():
            if path.is_relative_to(folder):
                item.add_marker(marker)
    items.sort(key=_turn_of)


def _turn_of(item: pytest.Item) -> int:
    """When a test starts: 0 with all that is no journey, 1 with the long journeys, 2 after them."""
    path = item.path.relative_to(_ROOT)
    if not path.is_relative_to(_JOURNEYS):
        return 0
    return 1 if any(map(path.is_relative_to, _LONG_JOURNEYS)) else 2
