"""Which plans served and which failed, as status keeps it.

A plan that failed is not tried again in the same circumstances: the same spec, fleet and versions.
A status that is lost costs one more try, nothing else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Self

from tonnage import __version__
from tonnage.api.conditions import Reason
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.status import FailedPlan, LastReadyPlan
from tonnage.api.text import truncate
from tonnage.catalog.catalog import Catalog
from tonnage.fit.model import Parallelism
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments, Tried
from tonnage.placement.model import Option
from tonnage.placement.report import adjustments_status
from tonnage.reconcile.actions import digest
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.findings import format_time
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.ready_plan import read_last_ready
from tonnage.reconcile.reported import read_reported
from tonnage.reconcile.serving import failure_to_serve
from tonnage.reconcile.terms import Terms
from tonnage.telemetry.startup_log import read_shortfall

_MAX_FAILED: Final = 16
_MAX_MESSAGE_BYTES: Final = 500

_FAULTS: Final = frozenset(
    {
        Reason.OUT_OF_MEMORY,
        Reason.IMAGE_PULL_FAILED,
        Reason.CRASH_LOOPING,
        Reason.SERVER_EXITED,
    }
)
"""Failures that are the plan's own. GPUs, quota and rights that are lacking are not."""

_NO_REQUESTS: Final = {"replicas", "scaling", "approval", "approved_plan", "gateway", "rollout"}
"""Fields of the spec that decide nothing of what a replica is."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a plan failed: in a word, and in the words of whoever knows best."""

    reason: Reason
    words: str


@dataclass(frozen=True, slots=True)
class Attempts:
    """The plan that served last, and those that failed in these circumstances, oldest first."""

    last_ready: LastReadyPlan | None = None
    failed: tuple[FailedPlan, ...] = ()

    def failure_of(self, plan: str) -> FailedPlan | None:
        """How the plan of this hash failed; None where it did not."""
        return next((found for found in self.failed if found.hash == plan), None)

    def have_failed_on(self, pool: str, split: Parallelism) -> bool:
        """Whether any plan for this split on the pool failed."""
        return any((one.pool, _split_of(one)) == (pool, split) for one in self.failed)

    def with_ready(self, plan: LastReadyPlan) -> Self:
        """All replicas serve by this plan: whatever went before, it has not failed."""
        failed = tuple(found for found in self.failed if found.hash != plan.hash)
        return replace(self, last_ready=plan, failed=failed)

    def with_failed(self, plan: FailedPlan) -> Self:
        """The plan failed, too."""
        return replace(self, failed=(*self.failed, plan)[-_MAX_FAILED:])


def read_attempts(status: Mapping[str, Any], circumstances: str | None = None) -> Attempts:
    """What a status tells of plans; of those that failed, in these circumstances (None: in all)."""
    raw = status.get("failedPlans")
    told = (read_reported(FailedPlan, one) for one in (raw if isinstance(raw, list) else ()))
    failed = (found for found in told if found is not None)
    return Attempts(
        read_last_ready(status),
        tuple(found for found in failed if circumstances in (None, found.circumstances)),
    )


def attempts_now(
    observation: Observation, spec: InferenceDeploymentSpec, fleet: Fleet, catalog: Catalog
) -> Attempts:
    """What the status before tells of plans, as far as it counts in the circumstances of now."""
    status = observation.previous_status
    if not status.get("failedPlans"):
        return read_attempts(status)
    return read_attempts(status, circumstances_of(observation, spec, fleet, catalog))


def circumstances_of(
    observation: Observation, spec: InferenceDeploymentSpec, fleet: Fleet, catalog: Catalog
) -> str:
    """Digest of what has to change before a failed plan is tried again.

    A restart that a person asks for is such a change; how many replicas there are to be is none.
    """
    asked = spec.model_dump(mode="json", exclude=_NO_REQUESTS, exclude_defaults=True)
    pools = fleet.pools(tolerations=spec.template.spec.tolerations)
    return digest(
        {
            "spec": asked,
            "restartedAt": spec.rollout.restarted_at,
            "queue": observation.queue,
            "pools": sorted(map(_traits, pools), key=lambda traits: str(traits["name"])),
            "operator": __version__,
            "vllm": catalog.release(spec.engine.vllm.version).version,
        }
    )


def starts_without_memory(attempts: Attempts, pools: Iterable[Pool]) -> tuple[Tried, ...]:
    """Failed plans whose GPUs had not enough memory by vLLM's words, as placement looks at them."""
    by_name = {pool.name: pool for pool in pools}
    return tuple(
        Tried(found.accelerator, device_bytes, _split_of(found), _adjustments_of(found), shortfall)
        for found in attempts.failed
        if found.reason == Reason.OUT_OF_MEMORY
        and (shortfall := read_shortfall(found.message)) is not None
        and (pool := by_name.get(found.pool)) is not None
        and (device_bytes := pool.device_bytes) is not None
    )


def find_fault(observation: Observation, running: ChildDeployment, fleet: Fleet) -> Fault | None:
    """Why the plan by which this Deployment runs has failed; None while it may still come up.

    A lack of memory does not pass by waiting. All else has until the Deployment's deadline.
    """
    if running.completed or running.updated == 0:
        return None
    failure = failure_to_serve(observation, running.placement)
    if failure is not None and failure.reason is Reason.OUT_OF_MEMORY:
        return Fault(failure.reason, failure.words)
    if not running.overdue:
        return None
    if failure is not None and failure.reason in _FAULTS:
        return Fault(failure.reason, failure.words)
    if failure is not None and failure.reason is not Reason.CONTAINERS_NOT_READY:
        return None
    if _lacks_nodes(observation, running, fleet):
        return None
    seconds = running.child.body["spec"].get("progressDeadlineSeconds")
    words = failure.words if failure else f"no further replica became ready within {seconds} s"
    return Fault(Reason.CONTAINERS_NOT_READY, words)


def failed_plan(
    terms: Terms, option: Option, fault: Fault, circumstances: str, now: datetime
) -> FailedPlan:
    """The plan and why it failed, as status keeps it."""
    return FailedPlan(
        hash=terms.hash,
        pool=terms.pool,
        accelerator=terms.accelerator,
        tensor_parallel_size=terms.parallelism.tensor,
        pipeline_parallel_size=terms.parallelism.pipeline,
        image=terms.image,
        adjustments=adjustments_status(option.adjustments),
        reason=fault.reason,
        message=truncate(fault.words, _MAX_MESSAGE_BYTES),
        at=format_time(now),
        circumstances=circumstances,
    )


def _split_of(failed: FailedPlan) -> Parallelism:
    return Parallelism(failed.tensor_parallel_size, failed.pipeline_parallel_size)


def _adjustments_of(failed: FailedPlan) -> EngineAdjustments:
    told = failed.adjustments
    return EngineAdjustments(**told.model_dump()) if told else UNADJUSTED


def _lacks_nodes(observation: Observation, running: ChildDeployment, fleet: Fleet) -> bool:
    """Whether a pod waits for a node, or is on one that nobody hears of: no plan can help that."""
    pods = [pod for pod in observation.pods if pod.placement == running.placement]
    return not pods or any(
        not pod.ready and not pod.deleting and (pod.node is None or fleet.is_silent(pod.node))
        for pod in pods
    )


def _traits(pool: Pool) -> dict[str, object]:
    """What of a pool decides whether a plan comes up there."""
    declared = pool.declared
    return {
        "name": pool.name,
        "accelerator": pool.accelerator.id if pool.accelerator else None,
        "deviceBytes": pool.device_bytes,
        "cuda": None if pool.cuda is None else str(pool.cuda),
        "declared": declared.model_dump(mode="json", include={"images", "env"})
        if declared
        else None,
    }
