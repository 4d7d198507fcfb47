"""What the replicas of all placements show by now: which plans failed, what vLLM measured, and what
both teach of memory. Each placement is looked at by itself."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tonnage.fit.corrections import MemoryCorrection
from tonnage.kube.protocol import Object
from tonnage.reconcile.approval import terms_of
from tonnage.reconcile.attempts import Attempts
from tonnage.reconcile.beside import image_of
from tonnage.reconcile.case import Case
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.measurement import Reading
from tonnage.reconcile.outcome import Scheduled
from tonnage.reconcile.placed_children import PlacedChildren


@dataclass(frozen=True, slots=True)
class Review:
    """`attempts` is what is known of plans now, `readings` what was measured, the first placement's
    first, `lessons` what is news of it."""

    attempts: Attempts
    readings: tuple[Reading, ...]
    lessons: tuple[MemoryCorrection, ...]


def review(case: Case, placed: Scheduled, deployment: Object, rollout: PlacedChildren) -> Review:
    """Look at all placements, the first one first."""
    readings: list[Reading] = []
    failures: list[MemoryCorrection] = []
    for one, child, running in _each(placed, deployment, rollout):
        attempts = case.judge(one, terms_of(one, child), running)
        reading = case.read_measurement(one, running, image_of(child))
        lesson = case.learn_from_failure(one, attempts) if reading is None else None
        readings += [reading] if reading is not None else []
        failures += [lesson] if lesson is not None else []
        case = replace(case, attempts=attempts)
    lessons = (*case.learn_from(readings), *failures) if case.may_teach else ()
    return Review(case.attempts, tuple(readings), lessons)


def _each(
    placed: Scheduled, deployment: Object, rollout: PlacedChildren
) -> Iterator[tuple[Scheduled, Object, ChildDeployment | None]]:
    """Each placement with its Deployment as it is to be, and the live one that already is that."""
    yield placed, deployment, rollout.settled
    for one in rollout.beside:
        yield one.placed, one.child, one.target
