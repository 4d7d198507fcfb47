"""What the replicas of all placements show by now: which plans failed, what vLLM measured, and what
both teach of memory. Each placement is reviewed by itself."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tonnage.fit.corrections import MemoryCorrection
from tonnage.kube.protocol import Object
from tonnage.reconcile.approval import terms_of
from tonnage.reconcile.attempts import Attempts, circumstances_of, failed_plan, find_fault
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.context import ReconcileContext
from tonnage.reconcile.measurement import (
    Reading,
    TaughtBy,
    draw_lesson_of_failure,
    draw_lessons,
    take_reading,
)
from tonnage.reconcile.outcome import Scheduled
from tonnage.reconcile.placements import PlacementChildren, image_of
from tonnage.reconcile.terms import Terms
from tonnage.telemetry.startup_log import read_shortfall


@dataclass(frozen=True, slots=True)
class Review:
    """`attempts` is what is known of plans now, `readings` what was measured, the first placement's
    first, `lessons` what is news of it."""

    attempts: Attempts
    readings: tuple[Reading, ...]
    lessons: tuple[MemoryCorrection, ...]


def review(
    context: ReconcileContext, placed: Scheduled, deployment: Object, children: PlacementChildren
) -> Review:
    """Review all placements, the first one first."""
    readings: list[Reading] = []
    failures: list[MemoryCorrection] = []
    for one, child, running in _each(placed, deployment, children):
        attempts = _judge(context, one, terms_of(one, child), running)
        reading = take_reading(
            context.observation,
            context.accepted,
            one.option,
            running,
            image_of(child),
            context.catalog,
        )
        lesson = _learn_from_failure(context, one, attempts) if reading is None else None
        readings += [reading] if reading is not None else []
        failures += [lesson] if lesson is not None else []
        context = replace(context, attempts=attempts)
    # An image of the user's own teaches nothing: it may be another vLLM.
    may_teach = context.spec.engine.vllm.image is None
    lessons = (*_learn_from(context, readings), *failures) if may_teach else ()
    return Review(context.attempts, tuple(readings), lessons)


def _each(
    placed: Scheduled, deployment: Object, children: PlacementChildren
) -> Iterator[tuple[Scheduled, Object, ChildDeployment | None]]:
    """Each placement with its Deployment as it is to be, and the live one that already is that."""
    yield placed, deployment, children.target
    for one in children.secondary:
        yield one.placed, one.child, one.target


def _judge(
    context: ReconcileContext, placed: Scheduled, terms: Terms, running: ChildDeployment | None
) -> Attempts:
    """What is known of plans by now: the one by which `running` runs may have failed.

    Nothing else is done about that before it stands in the status, so that no crash makes the
    same plan be tried again.
    """
    attempts = context.attempts
    last = attempts.last_ready
    if running is None or (last is not None and last.template == running.template):
        return attempts
    if attempts.failed and attempts.failure_of(terms.hash) is not None:
        return attempts
    fault = find_fault(context.observation, running, context.fleet)
    if fault is None:
        return attempts
    circumstances = circumstances_of(
        context.observation, context.spec, context.fleet, context.catalog
    )
    return attempts.with_failed(
        failed_plan(terms, placed.option, fault, circumstances, context.now)
    )


def _learn_from(
    context: ReconcileContext, readings: Iterable[Reading]
) -> tuple[MemoryCorrection, ...]:
    """What the placements teach of memory by what vLLM measured, where that is news."""
    return tuple(draw_lessons(readings, context.corrections, _taught_by(context), context.catalog))


def _learn_from_failure(
    context: ReconcileContext, placed: Scheduled, attempts: Attempts
) -> MemoryCorrection | None:
    """What the placement teaches by a failure that was just found."""
    if attempts.failed == context.attempts.failed:
        return None
    shortfall = read_shortfall(attempts.failed[-1].message)
    return draw_lesson_of_failure(
        placed.option, shortfall, context.accepted, _taught_by(context), context.catalog
    )


def _taught_by(context: ReconcileContext) -> TaughtBy:
    return TaughtBy("/".join(context.observation.owner), context.now.date())
