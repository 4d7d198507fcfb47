"""Nodes counted by class and by free GPUs."""

from tests.support.gpu_nodes import nvidia_node
from tonnage.catalog.load import load_catalog
from tonnage.fleet.group import Group, Member
from tonnage.fleet.node import read_node
from tonnage.fleet.node_class import Classifier, UnknownGroup
from tonnage.fleet.recognise import Recogniser

CLASSES = Classifier(Recogniser(load_catalog()), ())
WHOLE = CLASSES.classify(read_node(nvidia_node("a")))
FEWER = CLASSES.classify(read_node(nvidia_node("a", gpus=4)))


def group_of(**members: Member) -> Group:
    group = Group(UnknownGroup("nvidia.com/gpu"))
    for name, member in members.items():
        group.put(name, member)
    return group


def test_nodes_that_are_in_order_are_counted_by_what_is_free() -> None:
    group = group_of(
        a=Member(WHOLE, None, 0),
        b=Member(WHOLE, None, 5),
        c=Member(WHOLE, None, 5),
        d=Member(WHOLE, "cordoned", 0),
        e=Member(FEWER, None, 9),
    )
    assert group.classes[WHOLE].count == 4
    assert group.classes[WHOLE].in_order == {8: 1, 3: 2}
    assert group.classes[FEWER].in_order == {0: 1}


def test_a_node_that_changes_is_counted_once() -> None:
    group = group_of(a=Member(WHOLE, None, 0))
    assert group.put("a", Member(WHOLE, None, 3))
    assert not group.put("a", Member(WHOLE, None, 3))
    assert group.classes[WHOLE].in_order == {5: 1}


def test_only_another_set_of_classes_recasts_it() -> None:
    group = group_of(a=Member(WHOLE, None, 0), b=Member(WHOLE, None, 0))
    group.recast = False
    group.put("a", Member(WHOLE, "cordoned", 2))
    group.remove("b")
    assert not group.recast
    group.put("c", Member(FEWER, None, 0))
    assert group.recast


def test_nothing_is_left_of_a_node_that_is_gone() -> None:
    group = group_of(a=Member(WHOLE, None, 0))
    group.remove("a")
    assert (group.members, group.classes) == ({}, {})
