"""How much is played of what has no end, and how much that was, told at the end of a run."""

from collections import Counter

import pytest

from tests.support.views import VIEWS_EACH

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


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    found = config.stash.get(_PLAYED, Counter[str]())
    for what, count in sorted(found.items()):
        terminalreporter.write_line(f"{what}: {count}")
