"""Any node is read without an error and with bounded text, and is never guessed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.fleets.node_fixtures import node_fixtures
from tonnage.catalog.load import load_catalog
from tonnage.catalog.model import Accelerator
from tonnage.fleet.devices.recognize import Recognised, Recogniser, Unrecognised
from tonnage.fleet.nodes.node import read_node

CATALOG = load_catalog()
FIXTURES = list(node_fixtures())
KEYS = sorted({key for fixture in FIXTURES for key in fixture.body["metadata"]["labels"]})
VALUES = sorted(
    {str(value) for fixture in FIXTURES for value in fixture.body["metadata"]["labels"].values()}
)
RESOURCES = sorted({key for fixture in FIXTURES for key in fixture.body["status"]["capacity"]})
MAX_REASON_CHARS = 1000

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
hostile = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(scalars, inner))
huge = st.sampled_from(["9" * 5000, "x" * 5000, "-MIG-" * 900, "1" * 4000 + "g.10gb"])
labels = st.dictionaries(
    st.sampled_from(KEYS) | st.text(max_size=20),
    st.sampled_from(VALUES) | huge | scalars,
    max_size=12,
)
names = st.sampled_from(RESOURCES) | st.builds(
    "nvidia.com/mig-{}".format, st.text("0123456789cgb.+-me", max_size=40)
)
quantities = st.dictionaries(names, st.integers(0, 128).map(str) | scalars | huge, max_size=4)
accelerators = st.none() | st.sampled_from(list(CATALOG.accelerators.values()))


def node_body(labels: object, capacity: object, allocatable: object) -> dict[str, Any]:
    return {
        "metadata": {"name": "n", "labels": labels},
        "status": {"capacity": capacity, "allocatable": allocatable},
    }


@given(labels, quantities, quantities, accelerators)
def test_any_labels_and_resources_give_a_short_reason(
    labels: dict[str, Any],
    capacity: dict[str, Any],
    allocatable: dict[str, Any],
    declared: Accelerator | None,
) -> None:
    node = read_node(node_body(labels, capacity, allocatable))
    recognition = Recogniser(CATALOG).recognise(node, declared)
    if isinstance(recognition, Unrecognised):
        assert len(recognition.reason) < MAX_REASON_CHARS
    if isinstance(recognition, Recognised):
        assert len(recognition.unusable or "") < MAX_REASON_CHARS
        assert all(len(note) < MAX_REASON_CHARS for note in recognition.notes)
        assert recognition.partition is None or 0 < recognition.partition.share <= 1


@given(hostile, hostile, hostile)
def test_any_object_is_recognised_without_an_error(metadata: Any, spec: Any, status: Any) -> None:
    node = read_node({"metadata": metadata, "spec": spec, "status": status})
    assert Recogniser(CATALOG).recognise(node) is None or node.capacity or node.allocatable


@given(st.sampled_from(FIXTURES), st.data())
def test_the_order_of_labels_and_resources_does_not_matter(
    fixture: Any, data: st.DataObject
) -> None:
    def shuffled(mapping: dict[str, Any]) -> dict[str, Any]:
        return dict(data.draw(st.permutations(list(mapping.items()))))

    body, status = fixture.body, fixture.body["status"]
    again = node_body(
        shuffled(body["metadata"]["labels"]),
        shuffled(status["capacity"]),
        shuffled(status["allocatable"]),
    )
    recogniser = Recogniser(CATALOG)
    assert recogniser.recognise(read_node(again)) == recogniser.recognise(fixture.node)


def test_thousands_of_labels_give_a_short_reason() -> None:
    many = {f"example.com/{number}": "x" * 63 for number in range(5000)}
    counters = {f"amd.com/gpu.device-id.{number:04x}": "1" for number in range(5000)}
    node = read_node(node_body(many | counters, {"amd.com/gpu": "8"}, {"amd.com/gpu": "8"}))
    recognition = Recogniser(CATALOG).recognise(node)
    assert isinstance(recognition, Unrecognised)
    assert len(recognition.reason) < MAX_REASON_CHARS
