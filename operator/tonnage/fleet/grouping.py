"""Nodes grouped into pools: the declared ones first, what is left by accelerator."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.fleet.label_index import PARTITION
from tonnage.fleet.model import DeclaredPool, Node
from tonnage.fleet.pool_names import name_recognised, name_unrecognised, unique
from tonnage.fleet.recognise import Recognised, Recogniser, Unrecognised
from tonnage.fleet.selecting import Selector, SelectorIndex, selector_of

HOW_TO_DECLARE: Final = (
    "declare an AcceleratorPool that selects these nodes and names spec.accelerator"
)


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of one pool, before anybody asks which of their GPUs are free.

    `unplannable` are nodes whose GPUs are not told or not whole, with the reason.
    """

    name: str
    nodes: tuple[Node, ...]
    resource: str
    accelerator: Accelerator | None
    virtual_function: bool
    node_selector: Selector
    unplannable: Mapping[str, str]
    unrecognised: str | None = None
    declared: DeclaredPool | None = None
    overlaps: tuple[str, ...] = ()


def group_nodes(
    nodes: Sequence[Node], declared_pools: Iterable[DeclaredPool], recogniser: Recogniser
) -> tuple[Group, ...]:
    """Declared groups by name, then discovered ones by name; every GPU node is in exactly one."""
    pools = sorted(declared_pools, key=lambda pool: pool.name)
    members: dict[str, list[Node]] = {pool.name: [] for pool in pools}
    overlaps: dict[str, set[str]] = {pool.name: set() for pool in pools}
    index = SelectorIndex((selector_of(pool.spec.node_selector), pool.name) for pool in pools)
    rest = []
    for node in nodes:
        selecting = sorted(index.selecting(node))
        if not selecting:
            rest.append(node)
            continue
        first, *others = selecting
        members[first].append(node)
        for other in others:
            overlaps[other].add(first)
    declared = [
        _group_declared(pool, members[pool.name], sorted(overlaps[pool.name]), recogniser)
        for pool in pools
    ]
    return (*declared, *_group_rest(rest, {pool.name for pool in pools}, recogniser))


def _group_declared(
    pool: DeclaredPool, nodes: Sequence[Node], overlaps: Iterable[str], recogniser: Recogniser
) -> Group:
    declared, problem = _declared_accelerator(pool, recogniser)
    found = {node.name: recogniser.recognise(node, declared) for node in nodes}
    cards = [card for card in found.values() if isinstance(card, Recognised)]
    strangers = {name: card for name, card in found.items() if isinstance(card, Unrecognised)}
    problem = problem or _why_not_one_kind(pool, cards, strangers.values(), declared)
    accelerator = declared or next((card.accelerator for card in cards), None)
    resources = [card.resource for card in cards]
    resources += [card.resource for card in strangers.values()]
    return Group(
        name=pool.name,
        nodes=tuple(nodes),
        resource=next(iter(resources), accelerator.resource if accelerator else ""),
        accelerator=None if problem else accelerator,
        virtual_function=any(card.virtual_function for card in cards),
        node_selector=selector_of(pool.spec.node_selector),
        unplannable={name: card.reason for name, card in strangers.items()},
        unrecognised=problem,
        declared=pool,
        overlaps=tuple(overlaps),
    )


def _declared_accelerator(
    pool: DeclaredPool, recogniser: Recogniser
) -> tuple[Accelerator | None, str | None]:
    """The accelerator that the pool names, or why there is none of that name."""
    if pool.spec.accelerator is None:
        return None, None
    try:
        return recogniser.catalog.accelerator(pool.spec.accelerator), None
    except ValueError as error:
        return None, f"spec.accelerator of AcceleratorPool {pool.name}: {error}"


def _why_not_one_kind(
    pool: DeclaredPool,
    cards: Sequence[Recognised],
    strangers: Iterable[Unrecognised],
    declared: Accelerator | None,
) -> str | None:
    """Why nothing can be planned on a declared pool's nodes together; None when it can."""
    kinds = Counter((card.accelerator.id, card.resource) for card in cards)
    if len(kinds) > 1:
        several = ", ".join(
            f"{kind} as {resource} on {count} nodes"
            for (kind, resource), count in sorted(kinds.items())
        )
        return f"spec.nodeSelector of AcceleratorPool {pool.name} selects different GPUs: {several}"
    if not kinds and declared is None:
        return _summary([card.reason for card in strangers] or ["selects no node with GPUs"])
    return None


def _group_rest(nodes: Iterable[Node], taken: set[str], recogniser: Recogniser) -> list[Group]:
    known: dict[tuple[str, bool, str], dict[tuple[str, ...], list[tuple[Node, Recognised]]]] = {}
    unknown: dict[str, list[tuple[Node, Unrecognised]]] = {}
    for node in nodes:
        card = recogniser.recognise(node)
        if isinstance(card, Unrecognised):
            unknown.setdefault(card.resource, []).append((node, card))
        elif card is not None:
            kind = (card.accelerator.id, card.virtual_function, card.resource)
            told_by = tuple(key for key, _ in card.selector)
            known.setdefault(kind, {}).setdefault(told_by, []).append((node, card))
    names = set(taken)
    groups = []
    for _, by_label in sorted(known.items()):
        ranked = sorted(by_label.items(), key=lambda item: (item[1][0][1].rank, item[0]))
        for place, (told_by, members) in enumerate(ranked):
            name = name_recognised(members[0][1], "" if place == 0 else told_by[0])
            groups.append(_group_recognised(unique(name, names), members))
    for resource, strangers in sorted(unknown.items()):
        name = unique(name_unrecognised(resource), names)
        groups.append(_group_unrecognised(name, resource, strangers))
    return sorted(groups, key=lambda group: group.name)


def _group_recognised(name: str, members: Sequence[tuple[Node, Recognised]]) -> Group:
    nodes = tuple(node for node, _ in members)
    card = members[0][1]
    selector: dict[str, tuple[str, ...]] = {}
    for _, member in members:
        for key, values in member.selector:
            selector[key] = tuple(dict.fromkeys((*selector.get(key, ()), *values)))
    partitions = {node.labels.get(PARTITION) for node in nodes}
    if None not in partitions:  # the same cards in another mode are another pool's
        selector[PARTITION] = tuple(sorted(mode for mode in partitions if mode is not None))
    return Group(
        name=name,
        nodes=nodes,
        resource=card.resource,
        accelerator=card.accelerator,
        virtual_function=card.virtual_function,
        node_selector=selector,
        unplannable={},
    )


def _group_unrecognised(
    name: str, resource: str, members: Sequence[tuple[Node, Unrecognised]]
) -> Group:
    nodes = tuple(node for node, _ in members)
    reason = _summary([card.reason for _, card in members])
    declarable = any(not card.in_parts for _, card in members)
    return Group(
        name=name,
        nodes=nodes,
        resource=resource,
        accelerator=None,
        virtual_function=False,
        node_selector=_shared_labels(nodes),
        unplannable={node.name: card.reason for node, card in members},
        unrecognised=f"{reason}; {HOW_TO_DECLARE}" if declarable else reason,
    )


def _summary(reasons: Sequence[str]) -> str:
    """The commonest reason, and how many others there are."""
    counted = sorted(Counter(reasons).items(), key=lambda item: (-item[1], item[0]))
    others = len(counted) - 1
    more = {0: "", 1: " (and another cause)"}.get(others, f" (and {others} other causes)")
    return counted[0][0] + more


def _shared_labels(nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """The label that best describes nodes whose card is unknown: what all of them have alike."""
    alike = set(nodes[0].labels.items()).intersection(*(node.labels.items() for node in nodes[1:]))
    of_cards = sorted(item for item in alike if item[0].startswith(("amd.com/", "nvidia.com/")))
    preferred = [item for item in of_cards if item[0].endswith((".product", ".device-id"))]
    plain = sorted(item for item in alike if not item[0].endswith("/hostname"))
    fallback = ("kubernetes.io/os", "linux")  # the kubelet sets it on every node
    key, value = next(iter([*preferred, *of_cards, *plain]), fallback)
    return {key: (value,)}
