"""Nodes counted by class and by free GPUs."""

from tests.support.gpu_nodes import nvidia_node
from tonnage.catalog.load import load_catalog
from tonnage.fleet.devices.recognize import Recogniser
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.node_class import Classifier, NodeClass, UnknownGroup
from tonnage.fleet.pools.group import Group, Member
from tonnage.fleet.resources import Resources

CLASSES = Classifier(Recogniser(load_catalog()), ())
WHOLE = CLASSES.classify(read_node(nvidia_node("a")))
FEWER = CLASSES.classify(read_node(nvidia_node("a", gpus=4)))


def group_of(**members: Member) -> Group:
    group = Group(UnknownGroup("nvidia.com/gpu"))
    for name, member in members.items():
        group.put(name, member)
    return group


def free_gpus(group: Group, node_class: NodeClass) -> dict[int, int]:
    counts = group.classes[node_class].usable_by_free
    return {free.gpus: nodes for free, nodes in counts.items()}


def test_usable_nodes_are_counted_by_their_free_gpus() -> None:
    group = group_of(
        a=Member(WHOLE, None, Resources(0)),
        b=Member(WHOLE, None, Resources(5)),
        c=Member(WHOLE, None, Resources(5)),
        d=Member(WHOLE, "cordoned", Resources(0)),
        e=Member(FEWER, None, Resources(9)),
    )
    assert group.classes[WHOLE].nodes == 4
    assert free_gpus(group, WHOLE) == {8: 1, 3: 2}
    assert free_gpus(group, FEWER) == {0: 1}


def test_a_node_that_changes_is_counted_once() -> None:
    group = group_of(a=Member(WHOLE, None, Resources(0)))
    assert group.put("a", Member(WHOLE, None, Resources(3)))
    assert not group.put("a", Member(WHOLE, None, Resources(3)))
    assert free_gpus(group, WHOLE) == {5: 1}


def test_only_another_set_of_classes_is_a_change_of_classes() -> None:
    group = group_of(a=Member(WHOLE, None, Resources(0)), b=Member(WHOLE, None, Resources(0)))
    group.classes_changed = False
    group.put("a", Member(WHOLE, "cordoned", Resources(2)))
    group.remove("b")
    assert not group.classes_changed
    group.put("c", Member(FEWER, None, Resources(0)))
    assert group.classes_changed


def test_a_removed_node_leaves_nothing_behind() -> None:
    group = group_of(a=Member(WHOLE, None, Resources(0)))
    group.remove("a")
    assert (group.members, group.classes) == ({}, {})
