"""Review the replicas of all placements: which plans failed, what vLLM measured, and which memory
corrections follow. Each placement is reviewed on its own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tonnage.fit.calibration.corrections import MemoryCorrection
from tonnage.kube.protocol import Object
from tonnage.reconcile.calibration import (
    Reading,
    make_correction_from_failure,
    make_corrections,
    take_reading,
)
from tonnage.reconcile.observation.attempts import (
    Attempts,
    Fault,
    circumstances_of,
    failed_plan,
    find_fault,
)
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.plan_terms import Terms
from tonnage.reconcile.rollout.approval.state import terms_of
from tonnage.reconcile.rollout.placements import PlacementChildren, image_of
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.reconcile.scheduling.obstacles import find_obstacle
from tonnage.reconcile.scheduling.outcome import Scheduled
from tonnage.telemetry.startup_log import read_shortfall


@dataclass(frozen=True, slots=True)
class Review:
    """`attempts` are the known outcomes of plans now, `readings` the measurements, the first
    placement's first, `corrections` what is new in them."""

    attempts: Attempts
    readings: tuple[Reading, ...]
    corrections: tuple[MemoryCorrection, ...]


def review(
    context: ReconcileContext, placed: Scheduled, deployment: Object, children: PlacementChildren
) -> Review:
    """Review all placements, the first one first."""
    readings: list[Reading] = []
    failures: list[MemoryCorrection] = []
    for placement, child, running in _iter_placements(placed, deployment, children):
        attempts = _record_failure(context, placement, terms_of(placement, child), running)
        reading = take_reading(context, placement.option, running, image_of(child))
        if reading is not None:
            readings.append(reading)
        else:
            failures.extend(_make_corrections_from_failure(context, placement, attempts))
        context = replace(context, attempts=attempts)
    # A user's own image yields no corrections: it may be another vLLM.
    has_user_image = context.spec.engine.vllm.image is not None
    corrections = () if has_user_image else (*make_corrections(context, readings), *failures)
    return Review(context.attempts, tuple(readings), corrections)


def _iter_placements(
    placed: Scheduled, deployment: Object, children: PlacementChildren
) -> Iterator[tuple[Scheduled, Object, ChildDeployment | None]]:
    """Each placement with its rendered Deployment, and the live one that already matches it."""
    yield placed, deployment, children.target
    for secondary in children.secondary:
        yield secondary.placed, secondary.child, secondary.target


def _record_failure(
    context: ReconcileContext, placed: Scheduled, terms: Terms, running: ChildDeployment | None
) -> Attempts:
    """The attempts, with the plan of `running` added where it was just found to have failed.

    Nothing else is done about the failure before it stands in the status, so that no crash makes
    the operator try the same plan again.
    """
    attempts = context.attempts
    last = attempts.last_ready
    if running is None or (last is not None and last.template == running.template):
        return attempts
    if attempts.failed and attempts.failure_of(terms.hash) is not None:
        return attempts
    fault = find_fault(context.observation, running, context.fleet, context.now)
    fault = fault or _find_lasting_obstacle(context, placed, running)
    if fault is None:
        return attempts
    circumstances = circumstances_of(
        context.observation, context.spec, context.fleet, context.catalog
    )
    return attempts.with_failed(
        failed_plan(terms, placed.option, fault, circumstances, context.now)
    )


def _find_lasting_obstacle(
    context: ReconcileContext, placed: Scheduled, running: ChildDeployment
) -> Fault | None:
    """Why no pod comes, where the replicas are to leave the pool for that now."""
    if placed.leaves_at is None or placed.leaves_at > context.now:
        return None
    pool, fleet = placed.option.pool, context.fleet
    obstacle = find_obstacle(context.observation, running, pool, fleet, context.now)
    return obstacle.fault if obstacle else None


def _make_corrections_from_failure(
    context: ReconcileContext, placed: Scheduled, attempts: Attempts
) -> Iterator[MemoryCorrection]:
    """The memory correction from a failure of the placement that was just found, if any."""
    if attempts.failed == context.attempts.failed:
        return
    shortfall = read_shortfall(attempts.failed[-1].message)
    correction = make_correction_from_failure(context, placed.option, shortfall)
    if correction is not None:
        yield correction
