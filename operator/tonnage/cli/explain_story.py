"""What there is to tell of one object, and what happens to it next."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tonnage.api.conditions import Condition, ConditionType, Reason
from tonnage.api.status import PlacementStatus
from tonnage.cli.planning import Planned
from tonnage.cli.pools_view import pool_data
from tonnage.fleet.model import Pool
from tonnage.reconcile.children import ChildPod
from tonnage.reconcile.findings import format_time


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens next; `when` is None where an event decides that."""

    what: str
    when: str | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """One object: as it is and as it is planned now, the fleet around it, and the next steps."""

    planned: Planned
    pools: tuple[Pool, ...]
    steps: tuple[Step, ...]

    @property
    def generations(self) -> tuple[int, int | None]:
        """The generation of the spec, and the one that the operator has reported on."""
        observation = self.planned.observation
        return observation.generation, observation.previous_status.get("observedGeneration")

    @property
    def conditions(self) -> dict[str, Condition]:
        """The conditions by type, as they are now."""
        return {found.type: found for found in self.planned.plan.status.conditions}


def tell_next(planned: Planned, now: datetime) -> tuple[Step, ...]:
    """What the operator does next and when, else what it waits for."""
    return tuple(_tell_steps(planned, now)) or (
        Step("nothing is left to do: the replicas stay where they are"),
    )


def _tell_steps(planned: Planned, now: datetime) -> Iterator[Step]:
    plan, observation = planned.plan, planned.observation
    reported = observation.previous_status.get("observedGeneration")
    if reported != observation.generation:
        told = "on nothing" if reported is None else f"on generation {reported}"
        yield Step(f"the operator has reported {told} yet and will on {observation.generation}")
    elif _is_outdated(observation.previous_status, plan.status.to_dict()):
        yield Step(
            "the status that the operator wrote is older than what is there now: does it run?"
        )
    for action in plan.all_actions:
        yield Step(f"the operator is about to {action}")
    waiting = plan.status.proposed_plan
    if waiting is not None:
        yield Step(f"somebody has to approve plan {waiting.hash}: {waiting.message}")
    by_type = {found.type: found for found in plan.status.conditions}
    stalled = by_type.get(ConditionType.STALLED)
    progressing = by_type.get(ConditionType.PROGRESSING)
    if stalled is not None:
        yield Step(f"nothing gets better by itself: see why it is {stalled.reason}")
    elif progressing is not None and progressing.reason == Reason.ROLLOUT_PAUSED:
        yield Step(f"somebody has to end the pause: {progressing.message}")
    elif progressing is not None and progressing.status == "True" and not plan.actions:
        yield Step(f"under way: {progressing.message}")
    if plan.waits_for_capacity:
        yield Step("the operator looks again when GPUs become free")
    if plan.requeue.seconds is not None:
        when = now + timedelta(seconds=plan.requeue.seconds)
        yield Step("the operator looks again without any event", format_time(when))


def _is_outdated(reported: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether the place of the replicas, or the reason for it, is another one than reported."""
    return _essence(reported) != _essence(found)


def _essence(status: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    return (
        [
            (found.get("type"), found.get("status"), found.get("reason"))
            for found in status.get("conditions") or []
            if found.get("type") in (ConditionType.ACCEPTED, ConditionType.PLACED)
        ],
        [
            (found.get("pool"), found.get("tensorParallelSize"), found.get("replicas"))
            for found in status.get("placements") or []
        ],
    )


def measured_share(placement: PlacementStatus) -> float | None:
    """What vLLM measured as a part of what was predicted; None where nothing was measured."""
    if placement.measured_kv_cache_tokens is None or not placement.kv_cache_tokens:
        return None
    return placement.measured_kv_cache_tokens / placement.kv_cache_tokens


def tell_pod(pod: ChildPod) -> str:
    """Why a pod is not ready; empty where it is."""
    if pod.deleting:
        return "being deleted"
    if pod.unschedulable is not None:
        return f"waits for a node: {pod.unschedulable}"
    if pod.waiting is not None:
        return ": ".join(part for part in pod.waiting if part)
    if pod.end is not None and not pod.ready:
        return f"ended with exit code {pod.end.exit_code} ({pod.end.reason})"
    return "" if pod.ready else "not ready yet"


def story_data(story: Story) -> dict[str, Any]:
    """The story for programs."""
    planned = story.planned
    status = planned.plan.status.to_dict()
    generation, reported = story.generations
    return {
        "namespace": planned.key.namespace,
        "name": planned.key.name,
        "generation": generation,
        "reportedGeneration": reported,
        "status": status,
        "fleet": [pool_data(pool) for pool in story.pools],
        "pods": [
            {
                "name": pod.name,
                "placement": pod.placement,
                "node": pod.node,
                "gpus": pod.gpus,
                "ready": pod.ready,
                "restarts": pod.restarts,
                "message": tell_pod(pod),
            }
            for pod in planned.observation.pods
        ],
        "next": [{"what": step.what, "when": step.when} for step in story.steps],
    }
