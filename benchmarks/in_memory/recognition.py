"""How many node fixtures are recognised: `python -m benchmarks.in_memory.recognition`.

Every fixture is a node with a real label set and what it is to be taken for (tests/data/nodes). A
node that is taken for other devices than it has is a wrong guess, also after it has lost one label.
Ends with 1 unless all are taken for what they are and none is guessed.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.support.fleets.node_fixtures import (
    NodeFixture,
    node_fixtures,
    other_cards_after_losing_labels,
    what_is_wrong,
)
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.load import load_catalog
from tonnage.fleet.devices.recognize import Recogniser


def main() -> int:
    """Print the figures; 0 when every bar is met."""
    catalog = load_catalog()
    recogniser = Recogniser(catalog)
    fixtures = list(node_fixtures())
    known = [fixture for fixture in fixtures if "accelerator" in fixture.expect]
    problems = {f"{one.file}/{one.name}": what_is_wrong(one, recogniser) for one in fixtures}
    wrong = {name: problem for name, problem in problems.items() if problem is not None}
    mutations = sum(len(one.body["metadata"]["labels"]) for one in known)
    guessed = [guess for one in known for guess in other_cards_after_losing_labels(one, recogniser)]
    right = sum(1 for one in known if f"{one.file}/{one.name}" not in wrong)

    figures = {
        "accelerators in the catalogue": len(catalog.accelerators),
        "accelerators among the fixtures": len({one.expect["accelerator"] for one in known}),
        "node fixtures": len(fixtures),
        **{f"  {file}": count for file, count in Counter(one.file for one in fixtures).items()},
        "to be recognised": len(known),
        "recognised": f"{right} ({right / len(known):.1%})",
        "to be refused, with the words wanted": len(fixtures) - len(known),
        "taken for something else": len(wrong),
        "labels taken away, one at a time": mutations,
        "guessed wrong after that": len(guessed),
        "one node, nothing remembered": f"{_microseconds(fixtures, catalog):.0f} us",
    }
    report = [f"{name:<38}{figure}" for name, figure in figures.items()]
    report += [*(f"{name}: {problem}" for name, problem in wrong.items()), *guessed]
    sys.stdout.write("\n".join(report) + "\n")
    return 1 if wrong or guessed else 0


def _microseconds(fixtures: Sequence[NodeFixture], catalog: Catalog) -> float:
    recogniser = Recogniser(catalog)
    nodes = [fixture.node for fixture in fixtures]
    start = time.perf_counter()
    for node in nodes:
        recogniser.recognise(node)
    return (time.perf_counter() - start) / len(nodes) * 1e6


if __name__ == "__main__":
    sys.exit(main())
