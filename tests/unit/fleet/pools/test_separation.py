"""Labels that keep the pods of one pool off the nodes of another."""

from tonnage.fleet.nodes.node_class import DeclaredGroup, GroupKey, UnknownGroup
from tonnage.fleet.pools.separation import GroupLabels, Separation, separate_groups

CARDS = {"card": "h100"}
REST = UnknownGroup("nvidia.com/gpu")


def group_labels(
    key: GroupKey,
    selector: dict[str, str],
    *nodes: dict[str, str],
    selecting_pools: tuple[str, ...] = (),
) -> GroupLabels:
    return GroupLabels(
        key,
        {name: (value,) for name, value in selector.items()},
        frozenset(frozenset(labels.items()) for labels in nodes),
        frozenset([selecting_pools]),
    )


def test_separate_pools_need_no_exclusion() -> None:
    team = group_labels(DeclaredGroup("team"), {"team": "a"}, {"team": "a", "card": "l40s"})
    assert separate_groups([team, group_labels(REST, CARDS, CARDS)]) == {
        team.key: Separation(),
        REST: Separation(),
    }


def test_a_discovered_pool_excludes_the_nodes_of_a_declared_one() -> None:
    team = group_labels(DeclaredGroup("team"), {"team": "a"}, {"team": "a", **CARDS})
    separations = separate_groups([team, group_labels(REST, CARDS, CARDS)])
    assert separations[REST].exclusion == {"team": ("a",)}
    assert separations[team.key].exclusion == {}


def test_a_label_of_the_own_nodes_is_not_excluded() -> None:
    selector = {"team": "a", "zone": "z"}
    team = group_labels(DeclaredGroup("team"), selector, {**selector, **CARDS})
    rest = group_labels(REST, CARDS, CARDS, {"team": "a", **CARDS})
    assert separate_groups([team, rest])[REST].exclusion == {"zone": ("z",)}


def test_nothing_is_excluded_where_the_own_nodes_together_have_all_labels() -> None:
    selector = {"team": "a", "zone": "z"}
    team = group_labels(DeclaredGroup("team"), selector, {**selector, **CARDS})
    rest = group_labels(REST, CARDS, {"zone": "z", **CARDS}, {"team": "a", **CARDS})
    assert separate_groups([team, rest])[REST].exclusion == {}


def test_several_declared_pools_are_excluded_by_value() -> None:
    pools = [
        group_labels(DeclaredGroup(name), {"team": name}, {"team": name, **CARDS}) for name in "bca"
    ]
    assert separate_groups([*pools, group_labels(REST, CARDS, CARDS)])[REST].exclusion == {
        "team": ("a", "b", "c")
    }


def test_pools_that_select_the_same_nodes_name_each_other() -> None:
    both = {"x": "1", "y": "1"}
    first = group_labels(
        DeclaredGroup("first"), {"x": "1"}, both, selecting_pools=("first", "second")
    )
    second = group_labels(
        DeclaredGroup("second"), {"y": "1"}, {"y": "1"}, selecting_pools=("second",)
    )
    separations = separate_groups([first, second])
    assert separations[first.key] == Separation({}, (), ("second",))
    assert separations[second.key] == Separation({"x": ("1",)}, ("first",), ())
