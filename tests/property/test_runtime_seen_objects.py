"""Events lost, late and repeated: after a list with a quiet watch, what is known is what is."""

from hypothesis import given
from hypothesis import strategies as st

from tonnage.runtime.seen_objects import SeenObjects

NAMES = st.sampled_from("abc")
UIDS = st.sampled_from("123")
VALUES = st.integers(0, 3)
EVENTS = st.lists(st.tuples(st.sampled_from(["observe", "forget"]), NAMES, UIDS, VALUES))
CLUSTER = st.dictionaries(NAMES, st.tuples(UIDS, VALUES))


class Known:
    """What it tells of, as whoever listens has it."""

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}
        self.seen: SeenObjects[int] = SeenObjects(self.objects.__setitem__, self.drop)

    def drop(self, name: str) -> None:
        del self.objects[name]


def tell(seen: SeenObjects[int], events: list[tuple[str, str, str, int]]) -> None:
    for what, name, uid, value in events:
        if what == "observe":
            seen.observe(name, uid, value)
        else:
            seen.forget(name, uid)


def listed(cluster: dict[str, tuple[str, int]]) -> list[tuple[str, str, int]]:
    return [(name, uid, value) for name, (uid, value) in cluster.items()]


@given(EVENTS, CLUSTER)
def test_list_after_any_events_is_the_truth(
    events: list[tuple[str, str, str, int]], cluster: dict[str, tuple[str, int]]
) -> None:
    known = Known()
    seen = known.seen
    tell(seen, events)
    seen.replace(listed(cluster), seen.mark())
    assert known.objects == {name: value for name, (_, value) in cluster.items()}


@given(EVENTS, EVENTS, CLUSTER)
def test_second_list_heals_whatever_the_first_one_raced_with(
    before: list[tuple[str, str, str, int]],
    during: list[tuple[str, str, str, int]],
    cluster: dict[str, tuple[str, int]],
) -> None:
    known = Known()
    seen = known.seen
    tell(seen, before)
    since = seen.mark()
    tell(seen, during)
    seen.replace(listed(cluster), since)
    seen.replace(listed(cluster), seen.mark())
    assert known.objects == {name: value for name, (_, value) in cluster.items()}


@given(EVENTS, CLUSTER)
def test_list_that_repeats_what_is_known_is_no_change(
    events: list[tuple[str, str, str, int]], cluster: dict[str, tuple[str, int]]
) -> None:
    known = Known()
    seen = known.seen
    tell(seen, events)
    seen.replace(listed(cluster), seen.mark())
    assert not seen.replace(listed(cluster), seen.mark())
