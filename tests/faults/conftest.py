"""How many views each scenario is played with, and a summary of the faults that were played."""

from collections import Counter
from typing import Any

import pytest

from tests.support.faults.views import VIEWS_EACH

_PLAYED = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--views",
        type=int,
        default=VIEWS_EACH,
        help="views of the cluster that each scenario is played with, of all there are",
    )


@pytest.fixture
def played(request: pytest.FixtureRequest) -> Counter[str]:
    """Runs with a fault in them, by what the fault is."""
    return request.config.stash.setdefault(_PLAYED, Counter())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand a worker's counts over to the process that prints the summary."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["played"] = dict(session.config.stash.get(_PLAYED, Counter[str]()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the counts of a worker of pytest-xdist."""
    counts = getattr(node, "workeroutput", {}).get("played", {})
    node.config.stash.setdefault(_PLAYED, Counter[str]()).update(counts)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for fault, runs in sorted(config.stash.get(_PLAYED, Counter[str]()).items()):
        terminalreporter.write_line(f"{fault}: {runs}")
