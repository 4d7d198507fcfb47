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

_FOLDER = Path(__file__).parents[1] / "data" / "nodes"
_GIB = 1024**3
_KNOWN_EXPECTATIONS = {
    *("accelerator", "partition", "share", "device_bytes", "memory_gib", "resource"),
    *("virtual_function", "cuda", "unusable", "note", "unrecognised", "node", "no_gpus"),
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
    found = recogniser.recognise(node)
    if "node" in expect and expect["node"] not in (node.unusable or ""):
        return f"unusable: {node.unusable}"
    if "unrecognised" in expect:
        return _wrong_refusal(found, expect["unrecognised"])
    if "no_gpus" in expect:
        return None if found is None else f"{found}"
    if not isinstance(found, Recognised):
        return f"not recognised: {found}"
    return _difference(found, expect)


def _wrong_refusal(found: Recognition | None, words: list[str]) -> str | None:
    if not isinstance(found, Unrecognised):
        return f"recognised: {found}"
    missing = [word for word in words if word not in found.reason]
    return f"{missing} not in {found.reason!r}" if missing else None


def _difference(found: Recognised, expect: dict[str, Any]) -> str | None:
    """What of the answer is not as expected; what the fixture does not speak of must be usual."""
    partition = found.partition
    expected = {
        "accelerator": expect["accelerator"],
        "partition": expect.get("partition"),
        "virtual_function": expect.get("virtual_function", False),
        "cuda": expect.get("cuda"),
        "noted": "note" in expect,
        "usable": "unusable" not in expect,
    }
    actual: dict[str, Any] = {
        "accelerator": found.accelerator.id,
        "partition": partition.mode if partition else None,
        "virtual_function": found.virtual_function,
        "cuda": ".".join(map(str, found.cuda)) if found.cuda else None,
        "noted": bool(found.notes),
        "usable": found.unusable is None,
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
        expected["resource"], actual["resource"] = expect["resource"], found.resource
    if "note" in expect:
        expected["note"] = True
        actual["note"] = any(expect["note"] in note for note in found.notes)
    if "unusable" in expect:
        expected["why"], actual["why"] = True, expect["unusable"] in (found.unusable or "")
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
        found = recogniser.recognise(fixture.without(label))
        if isinstance(found, Recognised) and not _is_same(found, true):
            guessed.append(f"{fixture.name} without {label}: {found}")
    return guessed


def _is_same(found: Recognised, true: Recognition | None) -> bool:
    """Whether the devices are the same; that the memory mode is not told any more is no matter, nor
    that the node is known by another resource which it offers as well."""
    if not isinstance(true, Recognised):
        return False
    same_devices = found.resource != true.resource or _mode(found) == _mode(true)
    return found.accelerator is true.accelerator and same_devices


def _mode(found: Recognised) -> str:
    return found.partition.mode.partition("_")[0] if found.partition else ""
