"""The explanation of one object: its state, its plan, and the next steps."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tonnage.api.conditions import Condition, ConditionType, Reason
from tonnage.api.status import AvailableUpdate, PlacementStatus
from tonnage.cli.explain.claims import PodClaim
from tonnage.cli.explain.starts import download_data, running_download, start_data
from tonnage.cli.plan.planning import Planned
from tonnage.cli.pools_view import pool_data
from tonnage.engines.registry import engine_named
from tonnage.fleet.model import Pool
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.reconcile.observation.findings import format_time
from tonnage.reconcile.observation.previous import read_reported


@dataclass(frozen=True, slots=True)
class NextStep:
    """Something that happens next; `when` is None if an event triggers it."""

    what: str
    when: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """One object as observed and as planned at this time, the pools of its fleet, the next steps,
    and the ResourceClaims of its pods."""

    planned: Planned
    pools: tuple[Pool, ...]
    steps: tuple[NextStep, ...]
    at: datetime
    claims: tuple[PodClaim, ...] = ()

    @property
    def generations(self) -> tuple[int, int | None]:
        """The generation of the spec, and the observed generation in status."""
        observation = self.planned.observation
        return observation.generation, observation.previous_status.get("observedGeneration")

    @property
    def engine(self) -> str:
        """The engine of the replicas."""
        return engine_named(self.planned.observation.engine).title

    @property
    def conditions(self) -> dict[str, Condition]:
        """The planned conditions by type."""
        return {condition.type: condition for condition in self.planned.plan.status.conditions}


def list_next_steps(planned: Planned, now: datetime) -> tuple[NextStep, ...]:
    """What the operator does next and when, or what it waits for."""
    return tuple(_next_steps(planned, now)) or (
        NextStep("nothing is left to do: the replicas stay where they are"),
    )


def _next_steps(planned: Planned, now: datetime) -> Iterator[NextStep]:
    plan, observation = planned.plan, planned.observation
    reported = observation.previous_status.get("observedGeneration")
    if reported != observation.generation:
        last = "no generation" if reported is None else f"generation {reported}"
        yield NextStep(f"the operator has reported on {last} and will on {observation.generation}")
    elif _is_outdated(observation.previous_status, plan.status.to_dict()):
        yield NextStep("the reported status is out of date: is the operator running?")
    for action in plan.all_actions:
        yield NextStep(f"the operator is about to {action}")
    pending = plan.status.proposed_plan
    if pending is not None:
        yield NextStep(f"a user must approve plan {pending.hash}: {pending.message}")
    yield from _available_update(planned)
    by_type = {condition.type: condition for condition in plan.status.conditions}
    stalled = by_type.get(ConditionType.STALLED)
    progressing = by_type.get(ConditionType.PROGRESSING)
    if stalled is not None:
        yield NextStep(f"stalled ({stalled.reason}) until the spec or the cluster changes")
    elif progressing is not None and progressing.reason == Reason.ROLLOUT_PAUSED:
        yield NextStep(f"a user must end the pause: {progressing.message}")
    elif progressing is not None and progressing.status == "True" and not plan.actions:
        yield NextStep(f"in progress: {progressing.message}")
    if plan.waits_for_capacity:
        yield NextStep("the operator reconciles when GPUs become free")
    if plan.requeue.seconds is not None:
        when = now + timedelta(seconds=plan.requeue.seconds)
        yield NextStep("the operator reconciles without an event", format_time(when))


def _available_update(planned: Planned) -> Iterator[NextStep]:
    """The reported update: a dump may lack the Deployment that a planned one is compared with."""
    reported, key = planned.observation.previous_status.get("availableUpdate"), planned.key
    update = read_reported(AvailableUpdate, reported)
    if update is not None:
        command = f"`kubectl tonnage upgrade {key.name} -n {key.namespace}`"
        yield NextStep(f"{command} takes the available update: {update.message}")


def _is_outdated(reported: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
    """Whether the planned placement, or the reason for it, differs from the reported one."""
    return _summarize_placement(reported) != _summarize_placement(planned)


def _summarize_placement(status: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    return (
        [
            (condition.get("type"), condition.get("status"), condition.get("reason"))
            for condition in status.get("conditions") or []
            if condition.get("type") in (ConditionType.ACCEPTED, ConditionType.PLACED)
        ],
        [
            (placement.get("pool"), placement.get("tensorParallelSize"), placement.get("replicas"))
            for placement in status.get("placements") or []
        ],
    )


def measured_share(placement: PlacementStatus) -> float | None:
    """KV cache tokens that vLLM measured, over the predicted ones; None without a measurement."""
    if placement.measured_kv_cache_tokens is None or not placement.kv_cache_tokens:
        return None
    return placement.measured_kv_cache_tokens / placement.kv_cache_tokens


def format_pod_state(pod: ChildPod) -> str:
    """Why a pod is not ready; empty if it is."""
    if pod.deleting:
        return "being deleted"
    if pod.unschedulable is not None:
        return f"waits for a node: {pod.unschedulable}"
    if pod.waiting is not None:
        return ": ".join(part for part in pod.waiting if part)
    if pod.end is not None and not pod.ready:
        return f"ended with exit code {pod.end.exit_code} ({pod.end.reason})"
    return "" if pod.ready else "not ready yet"


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """The explanation as JSON data."""
    planned = explanation.planned
    status = planned.plan.status.to_dict()
    generation, reported = explanation.generations
    return {
        "namespace": planned.key.namespace,
        "name": planned.key.name,
        "generation": generation,
        "reportedGeneration": reported,
        "status": status,
        "fleet": [pool_data(pool) for pool in explanation.pools],
        "pods": [
            {
                "name": pod.name,
                "placement": pod.placement,
                "node": pod.node,
                "gpus": pod.gpus,
                "ready": pod.ready,
                "restarts": pod.restarts,
                "message": format_pod_state(pod),
                **start_data(planned.observation.starts.by_pod.get(pod.name)),
            }
            for pod in planned.observation.pods
        ],
        **download_data(running_download(planned.observation.weights.job)),
        **_claims_data(explanation.claims),
        "next": [{"what": step.what, "when": step.when} for step in explanation.steps],
    }


def _claims_data(claims: Iterable[PodClaim]) -> dict[str, Any]:
    listed = [
        {
            "name": claim.name,
            "pod": claim.pod,
            "state": claim.state,
            "devices": list(claim.devices),
        }
        for claim in claims
    ]
    return {"claims": listed} if listed else {}
