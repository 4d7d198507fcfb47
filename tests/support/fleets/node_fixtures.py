"""Node lists with real label sets, each node with what it is to be taken for (tests/data/nodes)."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from tonnage.fleet.devices.recognize import Recognised, Recogniser, Recognition, Unrecognised
from tonnage.fleet.model import Node
from tonnage.fleet.nodes.node import read_node

_FOLDER = Path(__file__).parents[2] / "data" / "nodes"
_GIB = 1024**3
_KNOWN_EXPECTATIONS = {
    *("accelerator", "partition", "share", "device_bytes", "memory_gib", "resource"),
    *("virtual_function", "cuda", "unusable", "note", "unrecognised", "node"),
}


@dataclass(frozen=True)
class NodeFixture:
    """A Node as `kubectl get nodes -o yaml` shows it; `expect` is what it is to be taken for."""

    file: str
    name: str
    body: dict[str, Any]
    expect: dict[str, Any]

    @property
    def node(self) -> Node:
        return read_node(self.body)

    def without(self, label: str) -> Node:
        """The node as it is without one of its labels."""
        labels = dict(self.body["metadata"]["labels"])
        del labels[label]
        return read_node({**self.body, "metadata": {**self.body["metadata"], "labels": labels}})


def node_fixtures() -> Iterator[NodeFixture]:
    """Every node of every file."""
    for path in sorted(_FOLDER.glob("*.yaml")):
        for item in yaml.safe_load(path.read_text(encoding="utf-8"))["items"]:
            body = dict(item)
            expect = body.pop("expect")
            assert set(expect) <= _KNOWN_EXPECTATIONS, expect
            yield NodeFixture(path.stem, body["metadata"]["name"], body, expect)


def what_is_wrong(fixture: NodeFixture, recogniser: Recogniser) -> str | None:
    """How the node is taken for something else than expected, None when it is not."""
    expect, node = fixture.expect, fixture.node
    recognition = recogniser.recognise(node)
    if "node" in expect and expect["node"] not in (node.unusable or ""):
        return f"unusable: {node.unusable}"
    if "unrecognised" in expect:
        return _wrong_refusal(recognition, expect["unrecognised"])
    if not isinstance(recognition, Recognised):
        return f"not recognised: {recognition}"
    return _difference(recognition, expect)


def _wrong_refusal(recognition: Recognition | None, words: list[str]) -> str | None:
    if not isinstance(recognition, Unrecognised):
        return f"recognised: {recognition}"
    missing = [word for word in words if word not in recognition.reason]
    return f"{missing} not in {recognition.reason!r}" if missing else None


def _difference(recognised: Recognised, expect: dict[str, Any]) -> str | None:
    """What of the answer is not as expected; what the fixture does not speak of must be usual."""
    partition = recognised.partition
    expected = {
        "accelerator": expect["accelerator"],
        "partition": expect.get("partition"),
        "virtual_function": expect.get("virtual_function", False),
        "cuda": expect.get("cuda"),
        "noted": "note" in expect,
        "usable": "unusable" not in expect,
    }
    actual: dict[str, Any] = {
        "accelerator": recognised.accelerator.id,
        "partition": partition.mode if partition else None,
        "virtual_function": recognised.virtual_function,
        "cuda": ".".join(map(str, recognised.cuda)) if recognised.cuda else None,
        "noted": bool(recognised.notes),
        "usable": recognised.unusable is None,
    }
    if partition is not None and "share" in expect:
        expected["share"] = float(Fraction(expect["share"]))
        actual["share"] = partition.share
        for key, value in (
            ("device_bytes", partition.device_bytes),
            ("memory_gib", round(partition.device_bytes / _GIB, 2)),
        ):
            if key in expect:
                expected[key], actual[key] = expect[key], value
    if "resource" in expect:
        expected["resource"], actual["resource"] = expect["resource"], recognised.resource
    if "note" in expect:
        expected["note"] = True
        actual["note"] = any(expect["note"] in note for note in recognised.notes)
    if "unusable" in expect:
        expected["why"], actual["why"] = True, expect["unusable"] in (recognised.unusable or "")
    wrong = {key: actual[key] for key in expected if expected[key] != actual[key]}
    return f"{wrong}, expected { {key: expected[key] for key in wrong} }" if wrong else None


def other_cards_after_losing_labels(fixture: NodeFixture, recogniser: Recogniser) -> list[str]:
    """Every way in which the node is taken for other devices when it loses one of its labels.

    Without a label a node may be unknown, and never another one: another card, or parts for whole
    GPUs or the other way round.
    """
    true = recogniser.recognise(fixture.node)
    guessed = []
    for label in fixture.body["metadata"]["labels"]:
        recognition = recogniser.recognise(fixture.without(label))
        if isinstance(recognition, Recognised) and not _is_same(recognition, true):
            guessed.append(f"{fixture.name} without {label}: {recognition}")
    return guessed


def _is_same(recognised: Recognised, true: Recognition | None) -> bool:
    """Whether the devices are the same; a missing memory mode does not matter, nor
    that the node is known by another resource which it offers as well."""
    if not isinstance(true, Recognised):
        return False
    same_devices = recognised.resource != true.resource or _mode(recognised) == _mode(true)
    return recognised.accelerator is true.accelerator and same_devices


def _mode(recognised: Recognised) -> str:
    return recognised.partition.mode.partition("_")[0] if recognised.partition else ""
