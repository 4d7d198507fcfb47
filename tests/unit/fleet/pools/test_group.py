"""Nodes counted by class and by free GPUs."""

from tests.support.fleets.gpu_nodes import nvidia_node
from tonnage.catalog.load import load_catalog
from tonnage.fleet.devices.recognize import Recogniser
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.node_class import Classifier, UnknownGroup
from tonnage.fleet.pools.group import Group, Member
from tonnage.fleet.resources import Resources

GIB = 2**30

CLASSES = Classifier(Recogniser(load_catalog()), ())
WHOLE = CLASSES.classify(read_node(nvidia_node("a")))
FEWER = CLASSES.classify(read_node(nvidia_node("a", gpus=4)))


def group_of(**members: Member) -> Group:
    group = Group(UnknownGroup("nvidia.com/gpu"))
    for name, member in members.items():
        group.put(name, member)
    return group


def test_usable_nodes_are_counted_by_their_free_gpus() -> None:
    group = group_of(
        a=Member(WHOLE, None, 0),
        b=Member(WHOLE, None, 5),
        c=Member(WHOLE, None, 5),
        d=Member(WHOLE, "cordoned", 0),
        e=Member(FEWER, None, 9),
    )
    assert group.classes[WHOLE].nodes == 4
    assert group.classes[WHOLE].usable_by_free == {8: 1, 3: 2}
    assert group.classes[FEWER].usable_by_free == {0: 1}


def test_a_node_that_changes_is_counted_once() -> None:
    group = group_of(a=Member(WHOLE, None, 0))
    assert group.put("a", Member(WHOLE, None, 3))
    assert not group.put("a", Member(WHOLE, None, 3))
    assert group.classes[WHOLE].usable_by_free == {5: 1}


def test_only_another_set_of_classes_is_a_change_of_classes() -> None:
    group = group_of(a=Member(WHOLE, None, 0), b=Member(WHOLE, None, 0))
    group.classes_changed = False
    group.put("a", Member(WHOLE, "cordoned", 2))
    group.remove("b")
    assert not group.classes_changed
    group.put("c", Member(FEWER, None, 0))
    assert group.classes_changed


def test_a_removed_node_leaves_nothing_behind() -> None:
    group = group_of(a=Member(WHOLE, None, 0))
    group.remove("a")
    assert (group.members, group.classes) == ({}, {})


def test_usable_nodes_with_free_gpus_are_counted_by_what_each_gpu_has() -> None:
    size, pod = Resources(16_500, 100 * GIB, 0), Resources(8000, 10 * GIB, 0)
    group = group_of(
        a=Member(WHOLE, None, 0, size=size),
        b=Member(WHOLE, None, 4, size=size, requested=pod),
        c=Member(WHOLE, None, 8, size=size, requested=pod),
        d=Member(WHOLE, "cordoned", 0, size=size),
    )
    whole, rest = Resources(2000, 12 * GIB, 0), Resources(2000, 22 * GIB, 0)
    assert group.classes[WHOLE].spare_per_gpu == {whole: 1, rest: 1}
    assert group.classes[WHOLE].sizes == {Resources(17_000, 100 * GIB, 0): 4}
    group.put("a", Member(WHOLE, None, 4, size=size, requested=pod))
    group.remove("d")
    assert group.classes[WHOLE].spare_per_gpu == {rest: 2}
    assert group.classes[WHOLE].sizes == {Resources(17_000, 100 * GIB, 0): 3}
