"""Properties of how the replicas of one object are split over pools."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from math import ceil

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.fleets.gpu_nodes import amd_node
from tests.support.fleets.placing import chosen, decide_on
from tonnage.placement.model import Option
from tonnage.placement.spread import ALL_WORK, Share, SpreadLimits, missing_work, split_over

ANY = chosen(decide_on([amd_node("a")]))


def option(name: str, needed: Fraction, capacity: int) -> Option:
    """A pool of which so many replicas would carry all, with capacity for so many."""
    pool = replace(ANY.pool, name=name)
    return replace(ANY, pool=pool, replicas=ceil(needed), needed=needed, capacity=capacity)


needs = st.integers(1, 12).map(Fraction) | st.integers(1, 1200).map(lambda n: Fraction(n, 100))
options = st.lists(st.tuples(needs, st.integers(0, 12)), min_size=1, max_size=5).map(
    lambda sizes: [option(f"p{place}", *size) for place, size in enumerate(sizes)]
)
held_replicas = st.dictionaries(st.sampled_from([f"p{n}" for n in range(6)]), st.integers(0, 12))
limits = st.builds(SpreadLimits, st.integers(1, 4), st.integers(1, 5))
UNLIMITED = SpreadLimits(1, 5)


def by_pool(shares: Sequence[Share]) -> Mapping[str, int]:
    return {share.option.pool.name: share.replicas for share in shares}


@given(options, held_replicas, limits)
def test_capacities_and_limits_are_respected(
    options: list[Option], held: dict[str, int], limits: SpreadLimits
) -> None:
    shares = split_over(options, held, limits)
    assert len(shares) <= limits.most_pools
    assert all(0 < share.replicas <= share.option.capacity for share in shares)
    running = {one.pool.name: min(held.get(one.pool.name, 0), one.capacity) for one in options}
    for share in shares:
        fewest = min(limits.least_replicas, running[share.option.pool.name] or 12)
        assert share.replicas >= fewest


@given(options, held_replicas)
def test_nothing_is_missing_with_capacity_for_all(
    options: list[Option], held: dict[str, int]
) -> None:
    most = sum((Share(one, one.capacity).work for one in options), Fraction(0))
    shares = split_over(options, held, UNLIMITED)
    assert missing_work(shares) == max(0, ALL_WORK - most)


@given(options, held_replicas, limits)
def test_a_split_is_stable(
    options: list[Option], held: dict[str, int], limits: SpreadLimits
) -> None:
    shares = split_over(options, held, limits)
    assert split_over(options, by_pool(shares), limits) == shares


@given(options, held_replicas)
def test_no_replica_is_unnecessary(options: list[Option], held: dict[str, int]) -> None:
    shares = split_over(options, held, UNLIMITED)
    for share in shares:
        rest = [one for one in shares if one is not share]
        fewer = [Share(share.option, share.replicas - 1)] if share.replicas > 1 else []
        assert missing_work([*rest, *fewer]) > 0


@given(options, held_replicas, st.integers(1, 12), st.integers(1, 12))
def test_running_replicas_stay_at_equal_demand(
    options: list[Option], held: dict[str, int], replicas: int, more: int
) -> None:
    """Where a replica is worth as much as any other, as with spec.replicas."""
    alike = [replace(one, replicas=replicas, needed=None) for one in options]
    before = by_pool(split_over(alike, held, UNLIMITED))
    larger = [replace(one, replicas=replicas + more, needed=None) for one in options]
    after = by_pool(split_over(larger, before, UNLIMITED))
    assert all(after.get(pool, 0) >= count for pool, count in before.items())


@given(options, held_replicas, st.integers(0, 60), st.integers(1, 4))
def test_the_total_cost_stays_within_the_limit(
    options: list[Option], held: dict[str, int], budget: int, least: int
) -> None:
    within = SpreadLimits(least, 5, Decimal(budget))
    priced = [
        replace(one, price_per_gpu_hour=Decimal(place + 1)) for place, one in enumerate(options)
    ]
    shares = split_over(priced, held, within)
    assert sum(share.alone.cost_per_hour or 0 for share in shares) <= budget
    assert split_over(priced, by_pool(shares), within) == shares


@given(options, st.integers(1, 12))
def test_the_first_pools_are_filled_first(options: list[Option], replicas: int) -> None:
    alike = [replace(one, replicas=replicas, needed=None) for one in options]
    shares = split_over(alike, {}, UNLIMITED)
    taken = [share.replicas for share in shares]
    capacities = [one.capacity for one in alike if one.capacity]
    assert taken[:-1] == capacities[: len(taken[:-1])]


@given(options, st.integers(2, 12), st.integers(1, 11))
def test_the_last_pool_is_released_first(options: list[Option], many: int, few: int) -> None:
    assume(few < many)
    alike = [replace(one, replicas=many, needed=None) for one in options]
    before = by_pool(split_over(alike, {}, UNLIMITED))
    after = by_pool(
        split_over([replace(one, replicas=few, needed=None) for one in alike], before, UNLIMITED)
    )
    kept = [(pool, after.get(pool, 0)) for pool in before]
    whole = [pool for pool, count in kept if count == before[pool]]
    gone = [pool for pool, count in kept if count == 0]
    assert [pool for pool, _ in kept][: len(whole)] == whole
    assert len(whole) + len(gone) >= len(kept) - 1


@given(needs, needs, st.integers(1, 12))
def test_the_remainder_is_rounded_once(first: Fraction, second: Fraction, capacity: int) -> None:
    assume(capacity < first)
    left = second * (1 - capacity / first)
    assume((ceil(left) - left) / second < 1 / first)  # else the first gives one back for that
    shares = split_over([option("a", first, capacity), option("b", second, 12)], {}, UNLIMITED)
    assert by_pool(shares) == {"a": capacity, "b": ceil(left)}
