"""The sums over statuses, with any words in the statuses."""

from typing import Any

from tests.support.specs.statuses import conditions, placement, scaling, status
from tonnage.controller.metrics.statuses import MAX_UNSCHEDULED, MAX_WANTED, OTHER, StatusMetrics
from tonnage.reconcile.key import Key

KEY, SECOND = Key("chat", "llama"), Key("chat", "qwen")


def candidate(verdict: str, reason: str) -> dict[str, Any]:
    return {"pool": "a", "verdict": verdict, "reason": reason, "message": ""}


def book() -> StatusMetrics:
    return StatusMetrics(frozenset({"mi300x", "h100-sxm-80gb"}))


def test_conditions_are_counted_by_status_and_every_status_is_exported() -> None:
    statuses = book()
    statuses.record(KEY, status(conditions=conditions(Accepted="True", Ready="False/OutOfMemory")))
    statuses.record(SECOND, status(conditions=conditions(Accepted="True", Ready="True")))
    sums = dict(statuses.sums("inferencedeployments"))
    assert len(sums) == 15
    assert sums["Accepted", "True"] == 2
    assert sums["Ready", "True"] == sums["Ready", "False"] == 1
    assert sums["Placed", "True"] == 0
    assert dict(statuses.sums("not_ready_objects")) == {("OutOfMemory",): 1}


def test_an_object_counts_with_its_last_status_until_it_is_deleted() -> None:
    statuses = book()
    statuses.record(KEY, status(placements=[placement("mi300x", replicas=2)]))
    statuses.record(KEY, status(placements=[placement("mi300x", replicas=3)]))
    assert dict(statuses.sums("placed_replicas")) == {("mi300x",): 3}
    statuses.record(KEY, status(placements=[placement("h100-sxm-80gb", replicas=1)]))
    assert dict(statuses.sums("placed_objects")) == {("mi300x",): 0, ("h100-sxm-80gb",): 1}
    statuses.forget(KEY)
    statuses.forget(KEY)
    for name in ("placed_objects", "placed_replicas", "ready_replicas"):
        assert set(dict(statuses.sums(name)).values()) == {0}  # type: ignore[arg-type]


def test_rejected_candidates_are_counted_by_reason_including_omitted_ones() -> None:
    statuses = book()
    statuses.record(
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
    assert dict(statuses.sums("rejected_candidates")) == {("WeightsDoNotFit",): 5}


def test_unscheduled_objects_have_their_reason_and_time() -> None:
    statuses = book()
    statuses.record(KEY, status(conditions=conditions(Placed="False/DoesNotFit")))
    statuses.record(SECOND, status(conditions=conditions(Placed="Unknown/NotAccepted")))
    (obj,) = statuses.longest_unscheduled()
    assert (obj.key, obj.reason, obj.since) == (KEY, "DoesNotFit", 1767225600.0)
    assert dict(statuses.sums("unplaced_objects")) == {("DoesNotFit",): 1}
    statuses.record(KEY, status(conditions=conditions(Placed="True")))
    assert statuses.longest_unscheduled() == []
    assert dict(statuses.sums("unplaced_objects")) == {("DoesNotFit",): 0}


def test_of_many_unscheduled_objects_the_oldest_are_named() -> None:
    statuses = book()
    for number in range(MAX_UNSCHEDULED + 5):
        at = f"2026-01-01T00:{59 - number // 60:02}:{59 - number % 60:02}Z"
        waiting = conditions(at, Placed="False/InsufficientGPUs")
        statuses.record(Key("chat", f"m{number:03}"), status(conditions=waiting))
    named = statuses.longest_unscheduled()
    assert len(named) == MAX_UNSCHEDULED
    assert named[0].key.name == f"m{MAX_UNSCHEDULED + 4:03}"
    assert Key("chat", "m000") not in {obj.key for obj in named}


def test_predicted_tokens_are_summed_over_the_measured_placements_only() -> None:
    statuses = book()
    statuses.record(KEY, status(placements=[placement("mi300x", measuredKvCacheTokens=1100)]))
    statuses.record(SECOND, status(placements=[placement("mi300x")]))
    assert dict(statuses.sums("kv_cache_tokens")) == {
        ("mi300x", "measured"): 1100,
        ("mi300x", "predicted"): 1000,
    }


def test_the_worst_ratio_is_the_farthest_from_one() -> None:
    statuses = book()
    for number, measured in enumerate((1000, 1500, 600)):
        key = Key("chat", f"m{number}")
        statuses.record(
            key, status(placements=[placement("mi300x", measuredKvCacheTokens=measured)])
        )
    assert statuses.worst_ratios() == {"mi300x": 0.6}
    statuses.forget(Key("chat", "m2"))
    assert statuses.worst_ratios() == {"mi300x": 1.5}
    statuses.forget(Key("chat", "m1"))
    assert statuses.worst_ratios() == {"mi300x": 1.0}


def test_wanted_replicas_are_named_up_to_a_limit() -> None:
    statuses = book()
    for number in range(MAX_WANTED + 3):
        statuses.record(Key("chat", f"m{number:04}"), status(scaling=scaling(number)))
    statuses.record(SECOND, status())
    wanted = statuses.wanted_replicas()
    assert (wanted[7], len(wanted)) == ((Key("chat", "m0007"), 7), MAX_WANTED)
    assert statuses.omitted_wanted == 3
    for number in range(MAX_WANTED):
        statuses.forget(Key("chat", f"m{number:04}"))
    assert [replicas for _, replicas in statuses.wanted_replicas()] == [1000, 1001, 1002]
    assert statuses.omitted_wanted == 0


def test_unknown_words_count_as_other() -> None:
    statuses = book()
    for number in range(50):
        edited = status(
            conditions=conditions(Placed=f"False/Odd{number}", Ready=f"False/Odd{number}"),
            placements=[placement(f"gpu-{number}", measuredKvCacheTokens=1)],
            candidates=[candidate("Rejected", f"Odd{number}")],
            omittedCandidates={f"Odd{number}": 3},
        )
        statuses.record(Key("chat", f"m{number}"), edited)
    for name in ("not_ready_objects", "unplaced_objects", "rejected_candidates", "placed_objects"):
        assert dict(statuses.sums(name)) == {(OTHER,): 50}  # type: ignore[arg-type]


def test_an_object_with_an_invalid_time_is_not_named() -> None:
    statuses = book()
    statuses.record(KEY, status(conditions=conditions("yesterday", Placed="False/DoesNotFit")))
    assert statuses.longest_unscheduled() == []


def test_statuses_are_kept_once_the_existing_objects_are_read() -> None:
    statuses = book()
    assert not statuses.kept
    statuses.record(KEY, status(conditions=conditions(Ready="True")))
    statuses.complete()
    assert statuses.kept
    assert dict(statuses.sums("inferencedeployments"))["Ready", "True"] == 1
