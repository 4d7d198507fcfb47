"""Nodes of one class share one object; what nobody looks at makes no class."""

from typing import Any

import pytest

from tests.support.gpu_nodes import H100, MI300X, amd_node, nvidia_labels, nvidia_node
from tonnage.catalog.load import load_catalog
from tonnage.fleet.declared import read_declared_pool
from tonnage.fleet.node import read_node
from tonnage.fleet.node_class import (
    Classifier,
    DeclaredGroup,
    GroupKey,
    KnownGroup,
    NodeClass,
    UnknownGroup,
)
from tonnage.fleet.recognise import Recogniser

RECOGNISER = Recogniser(load_catalog())


def classifier(**pools: dict[str, Any]) -> Classifier:
    bodies = [{"metadata": {"name": name}, "spec": spec} for name, spec in pools.items()]
    return Classifier(RECOGNISER, [pool for body in bodies if (pool := read_declared_pool(body))])


def classify(raw: dict[str, Any], **pools: dict[str, Any]) -> NodeClass:
    return classifier(**pools).classify(read_node(raw))


ALIKE = {
    "another name": nvidia_node("b"),
    "a label that nobody looks at": nvidia_node("a", H100 | {"rack": "7"}),
    "a cordon": nvidia_node("a", cordoned=True),
    "a taint that makes it unusable": nvidia_node(
        "a", taints=[{"key": "amd-dcm", "value": "up", "effect": "NoExecute"}]
    ),
}
OTHER = {
    "fewer GPUs": nvidia_node("a", gpus=7),
    "another card": nvidia_node("a", nvidia_labels("NVIDIA-H200", 143771)),
    "a taint that a pod may tolerate": nvidia_node(
        "a", taints=[{"key": "dedicated", "value": "train", "effect": "NoSchedule"}]
    ),
    "a label that a pool selects": nvidia_node("a", H100 | {"team": "chat"}),
}
POOLS = {"chat": {"nodeSelector": {"team": "chat"}}}


@pytest.mark.parametrize("raw", ALIKE.values(), ids=ALIKE.keys())
def test_these_are_of_one_class(raw: dict[str, Any]) -> None:
    classes = classifier(**POOLS)
    first = classes.classify(read_node(nvidia_node("a")))
    assert classes.classify(read_node(raw)) is first


@pytest.mark.parametrize("raw", OTHER.values(), ids=OTHER.keys())
def test_these_are_not(raw: dict[str, Any]) -> None:
    classes = classifier(**POOLS)
    first = classes.classify(read_node(nvidia_node("a")))
    assert classes.classify(read_node(raw)) is not first


GROUPS: dict[str, tuple[dict[str, Any], GroupKey | None]] = {
    "known": (
        nvidia_node("a"),
        KnownGroup("h100-sxm-80gb", False, "nvidia.com/gpu", "", ("nvidia.com/gpu.product",)),
    ),
    "unknown": (nvidia_node("a", {}), UnknownGroup("nvidia.com/gpu")),
    "no GPU": (nvidia_node("a", {}, gpus=0), None),
    "declared": (nvidia_node("a", H100 | {"team": "chat"}), DeclaredGroup("chat")),
    "declared without a GPU": (nvidia_node("a", {"team": "chat"}, gpus=0), DeclaredGroup("chat")),
}


@pytest.mark.parametrize(("raw", "want"), GROUPS.values(), ids=GROUPS.keys())
def test_the_class_tells_the_group(raw: dict[str, Any], want: GroupKey | None) -> None:
    assert classify(raw, **POOLS).group == want


def test_the_first_pool_by_name_has_the_nodes_that_several_select() -> None:
    selector = {"nodeSelector": {"team": "chat"}}
    found = classify(nvidia_node("a", H100 | {"team": "chat"}), second=selector, first=selector)
    assert (found.group, found.selecting) == (DeclaredGroup("first"), ("first", "second"))


def test_a_label_that_tells_the_cards_is_looked_at_once_it_is_seen() -> None:
    classes = classifier()
    before = classes.looks_at
    classes.classify(read_node(nvidia_node("a", {"cloud.google.com/gke-accelerator": "nvidia-l4"})))
    assert classes.looks_at == before + 1


def test_an_accelerator_that_does_not_exist_leaves_it_to_the_labels() -> None:
    spec = {"nodeSelector": {"team": "chat"}, "accelerator": "mi300"}
    found = classify(amd_node("a", MI300X | {"team": "chat"}), chat=spec)
    assert (found.group, found.resource, found.gpus) == (DeclaredGroup("chat"), "amd.com/gpu", 8)
