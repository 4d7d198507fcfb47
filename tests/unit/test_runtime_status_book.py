"""Statuses added up as they change, whatever stands in them."""

from typing import Any

from tests.support.statuses import conditions, placement, scaling, status
from tonnage.reconcile.key import Key
from tonnage.runtime.status_book import MAX_UNPLACED, MAX_WANTED, OTHER, StatusBook

KEY, SECOND = Key("chat", "llama"), Key("chat", "qwen")


def candidate(verdict: str, reason: str) -> dict[str, Any]:
    return {"pool": "a", "verdict": verdict, "reason": reason, "message": ""}


def book() -> StatusBook:
    return StatusBook(frozenset({"mi300x", "h100-sxm-80gb"}))


def test_conditions_are_counted_by_status_and_every_status_is_told() -> None:
    known = book()
    known.learn(KEY, status(conditions=conditions(Accepted="True", Ready="False/OutOfMemory")))
    known.learn(SECOND, status(conditions=conditions(Accepted="True", Ready="True")))
    told = dict(known.sums("inferencedeployments"))
    assert len(told) == 15
    assert told["Accepted", "True"] == 2
    assert told["Ready", "True"] == told["Ready", "False"] == 1
    assert told["Placed", "True"] == 0
    assert dict(known.sums("not_ready_objects")) == {("OutOfMemory",): 1}


def test_an_object_counts_as_it_is_and_no_more_once_it_is_gone() -> None:
    known = book()
    known.learn(KEY, status(placements=[placement("mi300x", replicas=2)]))
    known.learn(KEY, status(placements=[placement("mi300x", replicas=3)]))
    assert dict(known.sums("placed_replicas")) == {("mi300x",): 3}
    known.learn(KEY, status(placements=[placement("h100-sxm-80gb", replicas=1)]))
    assert dict(known.sums("placed_objects")) == {("mi300x",): 0, ("h100-sxm-80gb",): 1}
    known.forget(KEY)
    known.forget(KEY)
    for name in ("placed_objects", "placed_replicas", "ready_replicas"):
        assert set(dict(known.sums(name)).values()) == {0}  # type: ignore[arg-type]


def test_rejected_candidates_are_counted_by_reason_also_those_that_are_not_listed() -> None:
    known = book()
    known.learn(
        KEY,
        status(
            candidates=[
                candidate("Chosen", "LowestCost"),
                candidate("Feasible", "CostsMore"),
                candidate("Rejected", "WeightsDoNotFit"),
            ],
            omittedCandidates={"WeightsDoNotFit": 4, "CostsMore": 7},
        ),
    )
    assert dict(known.sums("rejected_candidates")) == {("WeightsDoNotFit",): 5}


def test_unplaced_objects_are_told_with_the_time_since() -> None:
    known = book()
    known.learn(KEY, status(conditions=conditions(Placed="False/DoesNotFit")))
    known.learn(SECOND, status(conditions=conditions(Placed="Unknown/NotAccepted")))
    (found,) = known.longest_unplaced()
    assert (found.key, found.reason, found.since) == (KEY, "DoesNotFit", 1767225600.0)
    assert dict(known.sums("unplaced_objects")) == {("DoesNotFit",): 1}
    known.learn(KEY, status(conditions=conditions(Placed="True")))
    assert known.longest_unplaced() == []
    assert dict(known.sums("unplaced_objects")) == {("DoesNotFit",): 0}


def test_of_many_unplaced_objects_those_are_named_that_wait_longest() -> None:
    known = book()
    for number in range(MAX_UNPLACED + 5):
        at = f"2026-01-01T00:{59 - number // 60:02}:{59 - number % 60:02}Z"
        waiting = conditions(at, Placed="False/InsufficientGPUs")
        known.learn(Key("chat", f"m{number:03}"), status(conditions=waiting))
    named = known.longest_unplaced()
    assert len(named) == MAX_UNPLACED
    assert named[0].key.name == f"m{MAX_UNPLACED + 4:03}"
    assert Key("chat", "m000") not in {found.key for found in named}


def test_measured_memory_stands_beside_what_was_predicted_for_the_same_placements() -> None:
    known = book()
    known.learn(KEY, status(placements=[placement("mi300x", measuredKvCacheTokens=1100)]))
    known.learn(SECOND, status(placements=[placement("mi300x")]))
    assert dict(known.sums("kv_cache_tokens")) == {
        ("mi300x", "measured"): 1100,
        ("mi300x", "predicted"): 1000,
    }


def test_half_as_much_is_as_far_off_as_twice_as_much() -> None:
    known = book()
    for number, measured in enumerate((1000, 1500, 600)):
        key = Key("chat", f"m{number}")
        known.learn(key, status(placements=[placement("mi300x", measuredKvCacheTokens=measured)]))
    assert known.worst_ratios() == {"mi300x": 0.6}
    known.forget(Key("chat", "m2"))
    assert known.worst_ratios() == {"mi300x": 1.5}
    known.forget(Key("chat", "m1"))
    assert known.worst_ratios() == {"mi300x": 1.0}


def test_the_replicas_that_loads_ask_for_are_told_by_name_up_to_a_number() -> None:
    known = book()
    for number in range(MAX_WANTED + 3):
        known.learn(Key("chat", f"m{number:04}"), status(scaling=scaling(number)))
    known.learn(SECOND, status())
    told = known.wanted_replicas()
    assert (told[7], len(told)) == ((Key("chat", "m0007"), 7), MAX_WANTED)
    assert known.untold_wanted == 3
    for number in range(MAX_WANTED):
        known.forget(Key("chat", f"m{number:04}"))
    assert [replicas for _, replicas in known.wanted_replicas()] == [1000, 1001, 1002]
    assert known.untold_wanted == 0


def test_words_that_are_none_of_ours_make_no_series_of_their_own() -> None:
    known = book()
    for number in range(50):
        edited = status(
            conditions=conditions(Placed=f"False/Odd{number}", Ready=f"False/Odd{number}"),
            placements=[placement(f"gpu-{number}", measuredKvCacheTokens=1)],
            candidates=[candidate("Rejected", f"Odd{number}")],
            omittedCandidates={f"Odd{number}": 3},
        )
        known.learn(Key("chat", f"m{number}"), edited)
    for name in ("not_ready_objects", "unplaced_objects", "rejected_candidates", "placed_objects"):
        assert dict(known.sums(name)) == {(OTHER,): 50}  # type: ignore[arg-type]


def test_a_time_that_nobody_can_read_makes_no_object_wait_since_then() -> None:
    known = book()
    known.learn(KEY, status(conditions=conditions("yesterday", Placed="False/DoesNotFit")))
    assert known.longest_unplaced() == []


def test_a_book_is_kept_once_what_exists_was_read() -> None:
    known = book()
    assert not known.kept
    known.prime([(KEY, status(conditions=conditions(Ready="True")))])
    assert known.kept
    assert dict(known.sums("inferencedeployments"))["Ready", "True"] == 1
