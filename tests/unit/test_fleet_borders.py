"""Where pools touch: which labels keep pods of one off the nodes of another."""

from tonnage.fleet.borders import Border, Outline, draw_borders
from tonnage.fleet.node_class import DeclaredGroup, GroupKey, UnknownGroup

CARDS = {"card": "h100"}
REST = UnknownGroup("nvidia.com/gpu")


def outline(
    key: GroupKey,
    selector: dict[str, str],
    *nodes: dict[str, str],
    selecting: tuple[str, ...] = (),
) -> Outline:
    return Outline(
        key,
        {name: (value,) for name, value in selector.items()},
        frozenset(frozenset(labels.items()) for labels in nodes),
        frozenset([selecting]),
    )


def test_pools_that_do_not_touch_have_no_border() -> None:
    team = outline(DeclaredGroup("team"), {"team": "a"}, {"team": "a", "card": "l40s"})
    assert draw_borders([team, outline(REST, CARDS, CARDS)]) == {
        team.key: Border(),
        REST: Border(),
    }


def test_the_rest_of_the_cards_keeps_off_those_that_are_declared() -> None:
    team = outline(DeclaredGroup("team"), {"team": "a"}, {"team": "a", **CARDS})
    borders = draw_borders([team, outline(REST, CARDS, CARDS)])
    assert borders[REST].exclusion == {"team": ("a",)}
    assert borders[team.key].exclusion == {}


def test_a_label_that_the_own_nodes_have_is_not_excluded() -> None:
    selector = {"team": "a", "zone": "z"}
    team = outline(DeclaredGroup("team"), selector, {**selector, **CARDS})
    rest = outline(REST, CARDS, CARDS, {"team": "a", **CARDS})
    assert draw_borders([team, rest])[REST].exclusion == {"zone": ("z",)}


def test_where_the_own_nodes_have_all_labels_between_them_nothing_can_be_excluded() -> None:
    selector = {"team": "a", "zone": "z"}
    team = outline(DeclaredGroup("team"), selector, {**selector, **CARDS})
    rest = outline(REST, CARDS, {"zone": "z", **CARDS}, {"team": "a", **CARDS})
    assert draw_borders([team, rest])[REST].exclusion == {}


def test_several_declared_pools_are_excluded_by_value() -> None:
    pools = [
        outline(DeclaredGroup(name), {"team": name}, {"team": name, **CARDS}) for name in "bca"
    ]
    assert draw_borders([*pools, outline(REST, CARDS, CARDS)])[REST].exclusion == {
        "team": ("a", "b", "c")
    }


def test_of_pools_that_select_the_same_nodes_each_names_the_other() -> None:
    both = {"x": "1", "y": "1"}
    first = outline(DeclaredGroup("first"), {"x": "1"}, both, selecting=("first", "second"))
    second = outline(DeclaredGroup("second"), {"y": "1"}, {"y": "1"}, selecting=("second",))
    borders = draw_borders([first, second])
    assert borders[first.key] == Border({}, (), ("second",))
    assert borders[second.key] == Border({"x": ("1",)}, ("first",), ())
