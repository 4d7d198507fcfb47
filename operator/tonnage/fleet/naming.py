"""The names of pools, which depend on what pools there are and never on who came first."""

from collections.abc import Iterable, Mapping

from tonnage.api.shard import Shard
from tonnage.fleet.group import Group
from tonnage.fleet.node_class import DeclaredGroup, GroupKey, KnownGroup, UnknownGroup
from tonnage.fleet.pool_names import name_recognised, name_unrecognised, unique
from tonnage.fleet.recognise import Recognised


def name_groups(groups: Mapping[GroupKey, Group], shard: Shard) -> dict[GroupKey, str]:
    """Every group's name, declared ones first, each by name.

    Of groups with the same devices the one that the best label tells has the plain name. A group
    that nobody declared is named after the shard, too: another may have the same devices.
    """
    declared = sorted(key.name for key in groups if isinstance(key, DeclaredGroup))
    taken = set(declared)
    discovered: dict[str, GroupKey] = {}
    for alike in _alike([key for key in groups if isinstance(key, KnownGroup)]):
        cards = {key: _first_card(groups[key]) for key in alike}
        ranked = sorted(alike, key=lambda key: (cards[key].rank, key.told_by))
        for place, key in enumerate(ranked):
            told_by = key.told_by[0] if place else ""
            name = shard.qualify(name_recognised(cards[key], told_by))
            discovered[unique(name, taken)] = key
    for unknown in sorted(_resources(groups)):
        discovered[unique(shard.qualify(name_unrecognised(unknown)), taken)] = UnknownGroup(unknown)
    return {
        **{DeclaredGroup(name): name for name in declared},
        **{key: name for name, key in sorted(discovered.items())},
    }


def _alike(keys: Iterable[KnownGroup]) -> Iterable[list[KnownGroup]]:
    """Groups with the same devices, in the order of the devices."""
    kinds: dict[tuple[str, bool, str, str], list[KnownGroup]] = {}
    for key in keys:
        kind = (key.accelerator, key.virtual_function, key.resource, key.mode)
        kinds.setdefault(kind, []).append(key)
    return (kinds[kind] for kind in sorted(kinds))


def _first_card(group: Group) -> Recognised:
    cards = (kind.recognition for kind in group.classes)
    known = [card for card in cards if isinstance(card, Recognised)]
    return min(known, key=lambda card: (card.rank, card.selector))


def _resources(groups: Iterable[GroupKey]) -> Iterable[str]:
    return (key.resource for key in groups if isinstance(key, UnknownGroup))
