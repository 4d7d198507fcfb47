"""The memory calculation against real vLLM: no figure may get worse than it has been."""

import math

import pytest

from accuracy import hardware, hardware_speeds
from accuracy.figures import FIGURES, Figure
from accuracy.floors import raise_floors, read_floors
from accuracy.measures import Error, median, percentile, relative_error, share_within, worst
from accuracy.records import builds, layouts, startups
from accuracy.sglang_startups import (
    ROUNDING_GIB,
    SGLangStartUp,
    log_rate_errors,
    log_token_errors,
    log_verdicts,
    log_weights_errors,
    sglang_startups,
)
from accuracy.startup_errors import verdicts


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_no_figure_is_worse_than_its_floor(figure: Figure) -> None:
    floor, value = read_floors()[figure.name], figure.measure()
    assert figure.holds(value, floor), f"{figure.what}: {value} is worse than {floor}"


HELD_OUT_LIMITS = [
    (hardware.weights_errors, 0.005),
    (hardware.kv_rate_errors, 0),
    (hardware.capacity_errors, 0.02),
    (hardware.non_torch_errors, 0.3),
    (hardware.graph_errors, 0.3),
]


@pytest.mark.parametrize(("errors", "limit"), HELD_OUT_LIMITS)
def test_held_out_starts_on_hardware_stay_within_the_limits(errors, limit: float) -> None:
    held = tuple(pair for pair in hardware.answered_hardware() if pair[0].held_out)
    sizes = errors(held)
    assert sizes
    assert {e.id: e.size for e in sizes if e.size > limit} == {}


@pytest.mark.parametrize(
    ("first_token", "experts", "limit"),
    [(False, True, 0.37), (False, False, 0.12), (True, True, 0.33), (True, False, 0.13)],
)
def test_estimated_times_of_held_out_starts_do_not_get_worse(
    first_token: bool, experts: bool, limit: float
) -> None:
    error = hardware_speeds.median_error(first_token, held_out=True, experts=experts)
    assert error is not None
    assert error <= limit


def test_a_third_of_the_starts_on_hardware_is_held_out() -> None:
    starts = hardware.hardware_starts()
    assert 3 * sum(start.held_out for start in starts) >= len(starts) > 0


SGLANG_HELD_OUT_LIMITS = [
    (log_weights_errors, 0.02),
    (log_rate_errors, ROUNDING_GIB),
    (log_token_errors, 0.02),
]


@pytest.mark.parametrize(("errors", "limit"), SGLANG_HELD_OUT_LIMITS)
def test_held_out_logs_of_sglang_stay_within_the_limits(errors, limit: float) -> None:
    sizes = errors(sglang_startups(held_out=True))
    assert sizes
    assert {e.id: e.size for e in sizes if e.size > limit} == {}


def test_verdicts_on_held_out_logs_of_sglang_are_right() -> None:
    verdicts = log_verdicts(sglang_startups(held_out=True))
    assert (verdicts.wrong, verdicts.not_calculated) == ((), ())
    assert verdicts.judged > 0


def test_logs_of_sglang_name_public_sources_and_a_third_of_them_is_held_out() -> None:
    held, mended = sglang_startups(held_out=True), sglang_startups(held_out=False)
    logs = [*held, *mended]
    assert 3 * len(held) >= len(logs) >= 20
    assert len({log.id for log in logs}) == len(logs)
    assert [log.id for log in logs if not log.source.startswith("https://github.com/")] == []
    assert [log.id for log in logs if not log.use_for and log.remark is None] == []


def _other_outcome(log: SGLangStartUp) -> SGLangStartUp:
    observed, starts = log.observed, log.observed.outcome == "starts"
    turned = observed.model_copy(update={"outcome": "does_not_start" if starts else "starts"})
    return log.model_copy(update={"observed": turned})


def test_a_log_with_another_outcome_is_called_wrong() -> None:
    logs = sglang_startups(held_out=False)
    verdicts = log_verdicts(_other_outcome(log) for log in logs)
    assert verdicts.not_calculated == log_verdicts(logs).not_calculated
    assert len(verdicts.wrong) == verdicts.judged - len(verdicts.not_calculated)
    assert verdicts.right_share == 0
    assert log_verdicts(()).right_share is None


def test_every_figure_has_a_floor_and_every_floor_a_figure() -> None:
    assert list(read_floors()) == [figure.name for figure in FIGURES]


def test_floors_only_rise(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    path = tmp_path / "floors.yaml"
    monkeypatch.setattr("accuracy.floors.PATH", path)
    error, share = FIGURES[0], FIGURES[-1]
    assert (error.at_most, share.at_most) == (True, False)
    path.write_text(f"{error.name}: 0.02\n{share.name}: 0.9\n")
    nothing = {figure.name: None for figure in FIGURES}
    raise_floors({**nothing, error.name: 0.03, share.name: 0.8})
    assert read_floors() == {error.name: 0.02, share.name: 0.9}
    raise_floors({**nothing, error.name: 0.0123456, share.name: 0.9876543})
    assert read_floors() == {error.name: 0.01235, share.name: 0.98765}
    assert error.holds(0.0123456, read_floors()[error.name]), "the value itself holds"


def test_a_figure_without_records_meets_no_floor() -> None:
    assert not FIGURES[0].holds(None, math.inf)


def test_every_record_is_read_and_estimated_once() -> None:
    for records in ([r.case.id for r in startups()], [r.case.id for r in layouts()],
                    [r.id for r in builds()]):  # fmt: skip
        assert len(records) == len(set(records)) > 50


ERRORS = [Error(str(number), number / 100) for number in range(11)]


def test_errors_are_summarized() -> None:
    assert median(ERRORS) == 0.05
    assert percentile(ERRORS, 0.9) == 0.09
    assert share_within(ERRORS, 0.05) == 6 / 11
    assert share_within(ERRORS, 0) == 1 / 11
    assert [error.id for error in worst(ERRORS, 2)] == ["10", "9"]
    assert median([]) is percentile([], 0.9) is share_within([], 1) is None


def test_a_missing_answer_is_an_error_of_100_percent() -> None:
    assert relative_error(None, 5.0) == 1.0
    assert relative_error(4.0, 5.0) == 0.2


def test_a_missing_verdict_is_wrong() -> None:
    started = next(
        r for r in startups() if "fit" in r.observed.use_for and r.observed.outcome == "fits"
    )
    died = next(
        r for r in startups() if "fit" in r.observed.use_for and r.observed.outcome != "fits"
    )
    judged = verdicts([(started, {}), (died, {})])
    assert (judged.false_no_fits, judged.false_fits) == ((started.case.id,), (died.case.id,))
    right = verdicts([(started, {"verdict": "fits"}), (died, {"verdict": "refused"})])
    assert right.balanced == 1
