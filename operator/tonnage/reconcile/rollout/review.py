"""Review the replicas of all placements: which plans failed, what engines measured, and which
memory corrections follow. Each placement is reviewed on its own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tonnage.fit.calibration.corrections import MemoryCorrection
from tonnage.placement.model import Option
from tonnage.reconcile.calibration import (
    Reading,
    make_correction_from_failure,
    make_corrections,
    take_reading,
)
from tonnage.reconcile.observation.attempts import (
    Attempts,
    circumstances_of,
    failed_plan,
    find_fault,
)
from tonnage.reconcile.observation.serving import newest
from tonnage.reconcile.rollout.approval.state import terms_of, terms_of_live
from tonnage.reconcile.rollout.placements import PlacementChildren, PlacementWorkload, image_of
from tonnage.reconcile.scheduling.blocked import find_blocked
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.telemetry.startup_log import read_shortfall


@dataclass(frozen=True, slots=True)
class Review:
    """`attempts` are the known outcomes of plans now, `readings` the measurements, the first
    placement's first, `corrections` what is new in them."""

    attempts: Attempts
    readings: tuple[Reading, ...]
    corrections: tuple[MemoryCorrection, ...]


def review(context: ReconcileContext, children: PlacementChildren) -> Review:
    """Review all placements, the first one first."""
    readings: list[Reading] = []
    failures: list[MemoryCorrection] = []
    for workload in (children.first, *children.secondary):
        option = workload.placed.option
        attempts = _record_failure(context, workload)
        reading = take_reading(context, option, workload.target, image_of(workload.child))
        if reading is not None:
            readings.append(reading)
        else:
            failures.extend(_make_corrections_from_failure(context, option, attempts))
        context = replace(context, attempts=attempts)
    # A user's own image yields no corrections: it may be another engine.
    settings = context.spec_on(children.first.placed.option.engine).engine.settings
    has_user_image = settings.image is not None
    corrections = () if has_user_image else (*make_corrections(context, readings), *failures)
    return Review(context.attempts, tuple(readings), corrections)


def without_recovered(context: ReconcileContext) -> ReconcileContext:
    """The context without the failure of the plan that runs, once all replicas serve by it: the
    cause may have been another program on the same GPUs."""
    attempts, running = context.attempts, newest(context.observation.deployments)
    if not attempts.failed or running is None or not running.serves(max(1, running.wanted)):
        return context
    return replace(context, attempts=attempts.without(terms_of_live(context, running).hash))


def _record_failure(context: ReconcileContext, workload: PlacementWorkload) -> Attempts:
    """The attempts, with the plan that a workload runs by added where it was just found to have
    failed.

    Nothing else is done about the failure before it stands in the status, so that no crash makes
    the operator try the same plan again.
    """
    attempts, running = context.attempts, workload.target
    last = attempts.last_ready
    if running is None or (last is not None and last.template == running.template):
        return attempts
    terms = terms_of(workload.placed, workload.child)
    if attempts.failed and attempts.failure_of(terms.hash) is not None:
        return attempts
    observation, fleet, now = context.observation, context.fleet, context.now
    blocked = find_blocked(observation, fleet, now) if last is None else None
    fault = find_fault(observation, running, fleet, now, blocked)
    if fault is None:
        return attempts
    circumstances = circumstances_of(observation, context.spec, fleet, context.catalog)
    option = workload.placed.option
    return attempts.with_failed(failed_plan(terms, option, fault, circumstances, now))


def _make_corrections_from_failure(
    context: ReconcileContext, option: Option, attempts: Attempts
) -> Iterator[MemoryCorrection]:
    """The memory correction from a failure of the placement that was just found, if any."""
    if attempts.failed == context.attempts.failed:
        return
    shortfall = read_shortfall(attempts.failed[-1].message)
    correction = make_correction_from_failure(context, option, shortfall)
    if correction is not None:
        yield correction
