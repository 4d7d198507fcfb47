"""Marks each test by its path, so that `pytest -m` selects what to run, and fixes the width of the
output."""

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


def pytest_configure() -> None:
    """Let tests see the same output in every terminal: xdist sets COLUMNS for its workers."""
    os.environ.pop("COLUMNS", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the marker of the test's path."""
    for item in items:
        path = item.path.relative_to(_ROOT)
        for folder, marker in _MARKER_OF_PATH.items():
            if path.is_relative_to(folder):
                item.add_marker(marker)
