"""Nodes of one class share one object; irrelevant differences make no class."""

from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import H100, MI300X, amd_node, nvidia_labels, nvidia_node
from tonnage.catalog.load import load_catalog
from tonnage.fleet.devices.recognize import Recogniser
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.node_class import (
    Classifier,
    DeclaredGroup,
    GroupKey,
    KnownGroup,
    NodeClass,
    UnknownGroup,
)
from tonnage.fleet.pools.declared import read_declared_pool

RECOGNISER = Recogniser(load_catalog())


def classifier(**pools: dict[str, Any]) -> Classifier:
    bodies = [{"metadata": {"name": name}, "spec": spec} for name, spec in pools.items()]
    return Classifier(RECOGNISER, [pool for body in bodies if (pool := read_declared_pool(body))])


def classify(raw: dict[str, Any], **pools: dict[str, Any]) -> NodeClass:
    return classifier(**pools).classify(read_node(raw))


SAME_CLASS = {
    "another name": nvidia_node("b"),
    "an irrelevant label": nvidia_node("a", H100 | {"rack": "7"}),
    "a cordon": nvidia_node("a", cordoned=True),
    "a taint that makes it unusable": nvidia_node(
        "a", taints=[{"key": "amd-dcm", "value": "up", "effect": "NoExecute"}]
    ),
}
OTHER_CLASS = {
    "fewer GPUs": nvidia_node("a", gpus=7),
    "another card": nvidia_node("a", nvidia_labels("NVIDIA-H200", 143771)),
    "a taint that a pod may tolerate": nvidia_node(
        "a", taints=[{"key": "dedicated", "value": "train", "effect": "NoSchedule"}]
    ),
    "a label that a pool selects": nvidia_node("a", H100 | {"team": "chat"}),
}
POOLS = {"chat": {"nodeSelector": {"team": "chat"}}}


@pytest.mark.parametrize("raw", SAME_CLASS.values(), ids=SAME_CLASS.keys())
def test_these_nodes_share_a_class(raw: dict[str, Any]) -> None:
    classes = classifier(**POOLS)
    first = classes.classify(read_node(nvidia_node("a")))
    assert classes.classify(read_node(raw)) is first


@pytest.mark.parametrize("raw", OTHER_CLASS.values(), ids=OTHER_CLASS.keys())
def test_these_nodes_have_another_class(raw: dict[str, Any]) -> None:
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
def test_a_class_has_its_group(raw: dict[str, Any], want: GroupKey | None) -> None:
    assert classify(raw, **POOLS).group == want


def test_the_first_pool_by_name_owns_nodes_that_several_select() -> None:
    selector = {"nodeSelector": {"team": "chat"}}
    labels = H100 | {"team": "chat"}
    node_class = classify(nvidia_node("a", labels), second=selector, first=selector)
    assert node_class.group == DeclaredGroup("first")
    assert node_class.selecting_pools == ("first", "second")


def test_an_identifying_label_becomes_relevant_once_a_node_has_it() -> None:
    classes = classifier()
    before = classes.relevant_label_count
    classes.classify(read_node(nvidia_node("a", {"cloud.google.com/gke-accelerator": "nvidia-l4"})))
    assert classes.relevant_label_count == before + 1


def test_an_unknown_accelerator_of_a_pool_leaves_identification_to_the_labels() -> None:
    spec = {"nodeSelector": {"team": "chat"}, "accelerator": "mi300"}
    node_class = classify(amd_node("a", MI300X | {"team": "chat"}), chat=spec)
    assert (node_class.group, node_class.resource, node_class.gpus) == (
        DeclaredGroup("chat"),
        "amd.com/gpu",
        8,
    )
