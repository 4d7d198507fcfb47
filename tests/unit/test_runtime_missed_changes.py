"""A watch that is silent is told from one that is late or was begun anew."""

from tonnage.runtime.seen_objects import SeenObjects


class Watched:
    """Objects by name, each as a number; told by events, corrected by lists."""

    def __init__(self) -> None:
        self.seen: SeenObjects[int] = SeenObjects(lambda *_: None, lambda _: None)

    def tell(self, name: str, value: int) -> None:
        self.seen.observe(name, "1", value)

    def list(self, **cluster: int) -> None:
        listed = ((name, "1", value) for name, value in cluster.items())
        self.seen.replace(listed, self.seen.mark())

    @property
    def missed(self) -> int:
        return self.seen.take_unannounced()


def settled(**cluster: int) -> Watched:
    """A watch that has told of everything, and one list that agreed."""
    watched = Watched()
    for name, value in cluster.items():
        watched.tell(name, value)
    watched.list(**cluster)
    return watched


def test_first_list_misses_nothing() -> None:
    watched = Watched()
    watched.list(a=1, b=1)
    assert watched.missed == 0


def test_what_no_event_told_is_counted_once() -> None:
    watched = settled(a=1, b=1, c=1)
    watched.list(a=2, b=1, d=1)  # a changed, c is gone, d is new
    assert watched.missed == 3
    assert watched.missed == 0
    watched.list(a=2, b=1, d=1)
    assert watched.missed == 0


def test_events_that_come_soon_after_the_list_were_only_late() -> None:
    watched = settled(a=1, b=1)
    watched.list(a=2)
    watched.tell("a", 2)
    watched.seen.forget("b", "1")
    assert watched.missed == 0


def test_a_new_watch_explains_what_was_lost_before_it() -> None:
    watched = settled(a=1, b=1)
    watched.seen.begin_anew()
    watched.list(a=1)
    assert watched.missed == 0
    watched.list(a=1, c=1)
    assert watched.missed == 1, "the next list has no such excuse"


def test_a_watch_begun_anew_after_the_list_explains_it_too() -> None:
    watched = settled(a=1, b=1)
    watched.list(a=1)
    watched.seen.begin_anew()
    assert watched.missed == 0


def test_a_watch_begun_anew_during_a_list_explains_the_next_one() -> None:
    watched = settled(a=1, b=1)
    since = watched.seen.mark()
    watched.seen.begin_anew()
    watched.seen.replace([("a", "1", 1), ("b", "1", 1)], since)
    watched.list(a=1)
    assert watched.missed == 0
