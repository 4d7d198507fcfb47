"""Which plans served and which failed, as status keeps them.

The operator does not retry a failed plan in the same circumstances: the same spec, fleet and
versions. A lost status costs one more attempt, nothing else.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Self

from tonnage import __version__
from tonnage.api.conditions import Reason
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.status import FailedPlan, LastReadyPlan
from tonnage.api.text import digest, truncate
from tonnage.catalog.catalog import Catalog
from tonnage.engines.registry import engine_for
from tonnage.fit.model import Parallelism
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.placement.adjustments import (
    UNADJUSTED,
    EngineAdjustments,
    FailedStart,
    MemoryShortfall,
)
from tonnage.placement.model import Option
from tonnage.placement.report import (
    adjustments_status,
    chosen_engine,
    optional_sizes,
    read_parallelism,
)
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.deadline import is_overdue, is_unready_for_long
from tonnage.reconcile.observation.findings import format_time
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.plan_terms import Terms, read_last_ready
from tonnage.reconcile.observation.pods.failures import PodFailure
from tonnage.reconcile.observation.previous import read_reported
from tonnage.reconcile.observation.serving import failure_to_serve
from tonnage.telemetry.startup_log import read_shortfall
from tonnage.workloads.registry import workload_kind_of

_MAX_FAILED: Final = 16
_MAX_MESSAGE_BYTES: Final = 500

_FAULTS: Final = frozenset(
    {
        Reason.OUT_OF_MEMORY,
        Reason.IMAGE_PULL_FAILED,
        Reason.CRASH_LOOPING,
        Reason.SERVER_EXITED,
        Reason.CONTAINER_NOT_CREATED,
        Reason.POD_FAILED,
    }
)
"""Failures of the plan. A lack of GPUs never counts as one. Pods that the API server refuses, or
that no node takes for another reason, count only for an object that never served."""

_QUOTA: Final = "exceeded quota"
"""In the message of the ResourceQuota plugin (kubernetes pkg/quota)."""

_ON_EVERY_POOL: Final = (
    "failed quota: ",  # the namespace demands a request or limit of each container
    "error looking up service account ",
    "unbound immediate PersistentVolumeClaims",
    "persistentvolumeclaim ",  # it does not exist
)
"""Refusals, and messages of the scheduler, that no other pool avoids (kubernetes pkg/quota,
plugin/pkg/admission/serviceaccount, pkg/scheduler/framework/plugins/volumebinding)."""

_IGNORED_FIELDS: Final = {"replicas", "scaling", "approval", "approved_plan", "gateway", "rollout"}
"""Fields of the spec that do not change a replica."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a plan failed: the reason, and the message of its source."""

    reason: Reason
    words: str


@dataclass(frozen=True, slots=True)
class Attempts:
    """The last plan that served, and those that failed in these circumstances, oldest first."""

    last_ready: LastReadyPlan | None = None
    failed: tuple[FailedPlan, ...] = ()

    def failure_of(self, plan: str) -> FailedPlan | None:
        """How the plan of this hash failed; None if it did not."""
        return next((failed for failed in self.failed if failed.hash == plan), None)

    def have_failed_on(self, pool: str, parallelism: Parallelism) -> bool:
        """Whether any plan with this parallelism on the pool failed."""
        return any(
            (plan.pool, read_parallelism(plan)) == (pool, parallelism) for plan in self.failed
        )

    def without(self, plan: str) -> Self:
        """Forget the failures of the plan of this hash."""
        return replace(self, failed=tuple(one for one in self.failed if one.hash != plan))

    def with_ready(self, plan: LastReadyPlan) -> Self:
        """Record that all replicas serve by this plan, and forget its earlier failures."""
        return replace(self.without(plan.hash), last_ready=plan)

    def with_failed(self, plan: FailedPlan) -> Self:
        """Record that the plan failed."""
        return replace(self, failed=(*self.failed, plan)[-_MAX_FAILED:])


def read_attempts(status: Mapping[str, Any], circumstances: str | None = None) -> Attempts:
    """Read the plans of a status; of those that failed, in these circumstances (None: in all)."""
    raw = status.get("failedPlans")
    plans = (read_reported(FailedPlan, one) for one in (raw if isinstance(raw, list) else ()))
    failed = (plan for plan in plans if plan is not None)
    return Attempts(
        read_last_ready(status),
        tuple(plan for plan in failed if circumstances in (None, plan.circumstances)),
    )


def attempts_now(
    observation: Observation, spec: InferenceDeploymentSpec, fleet: Fleet, catalog: Catalog
) -> Attempts:
    """Read the plans of the previous status that count in the present circumstances."""
    status = observation.previous_status
    if not status.get("failedPlans"):
        return read_attempts(status)
    return read_attempts(status, circumstances_of(observation, spec, fleet, catalog))


def circumstances_of(
    observation: Observation, spec: InferenceDeploymentSpec, fleet: Fleet, catalog: Catalog
) -> str:
    """Digest of what has to change before the operator retries a failed plan.

    A restart that the user requests is such a change; the number of replicas is not.
    """
    replica_spec = spec.model_dump(mode="json", exclude=_IGNORED_FIELDS, exclude_defaults=True)
    pools = fleet.pools(tolerations=spec.tolerations)
    return digest(
        {
            "spec": replica_spec,
            "restartedAt": spec.rollout.restarted_at,
            "queue": observation.queue,
            "pools": sorted(map(_traits, pools), key=lambda traits: str(traits["name"])),
            "operator": __version__,
            **dict(_releases(spec, catalog)),
        }
    )


def _releases(spec: InferenceDeploymentSpec, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """The release of each engine that may run the spec."""
    for name in spec.engine.choices:
        of_engine = spec.with_engine(name)
        version = of_engine.engine.settings.version
        yield name, engine_for(of_engine).release(version, catalog)


def starts_without_memory(attempts: Attempts, pools: Iterable[Pool]) -> tuple[FailedStart, ...]:
    """Failed plans that lacked GPU memory by their logs, in the form that placement takes."""
    by_name = {pool.name: pool for pool in pools} if attempts.failed else {}
    return tuple(
        FailedStart(
            plan.accelerator,
            device_bytes,
            read_parallelism(plan),
            _adjustments_of(plan),
            shortfall,
            plan.engine,
        )
        for plan in attempts.failed
        if (shortfall := _shortfall_of(plan)) is not None
        and (pool := by_name.get(plan.pool)) is not None
        and (device_bytes := pool.device_bytes) is not None
    )


def failed_pools(attempts: Attempts) -> dict[str, str]:
    """Pools on which a plan failed for another cause than GPU memory, which other settings may
    save; with the cause of the last failure."""
    return {
        plan.pool: f"{plan.reason}: {plan.message}"
        for plan in attempts.failed
        if _shortfall_of(plan) is None
    }


def find_fault(
    observation: Observation,
    running: ChildDeployment,
    fleet: Fleet,
    now: datetime,
    blocked: Collection[str] | None,
) -> Fault | None:
    """Why the plan of this Deployment has failed; None while its replicas may still become ready.

    Out of memory is a fault at once. Any other failure has until the Deployment's deadline; where
    one failed pod replaces another, or the controller keeps no deadline, only the operator knows
    when that has passed. `blocked` are
    the pods of a new object that no node takes for another reason than GPUs, None for an object
    that has served: it waits, since its pool was able to take them.
    """
    if running.has_served:
        return None
    if running.updated == 0:
        is_new = blocked is not None
        is_late = is_new and is_unready_for_long(observation, running, now)
        return _find_refusal(running, fleet) if is_late else None
    failure = failure_to_serve(observation, running.placement)
    if failure is not None and failure.reason is Reason.OUT_OF_MEMORY:
        return Fault(failure.reason, failure.words)
    if not _is_late(observation, running, failure, now):
        return None
    if failure is not None and failure.reason in _FAULTS:
        return Fault(failure.reason, failure.words)
    if failure is not None and failure.reason is Reason.UNSCHEDULABLE:
        waiting = _waiting_pods(observation, running)
        helps = not _is_on_every_pool(failure.words)
        leaves = helps and waiting and waiting <= set(blocked or ())
        return Fault(failure.reason, failure.words) if leaves else None
    if failure is not None and failure.reason is not Reason.CONTAINERS_NOT_READY:
        return None
    if _lacks_nodes(observation, running, fleet):
        return None
    body = running.child.body
    seconds = workload_kind_of(body).deadline_seconds(body)
    words = failure.words if failure else f"no further replica became ready within {seconds} s"
    return Fault(Reason.CONTAINERS_NOT_READY, words)


def failed_plan(
    terms: Terms, option: Option, fault: Fault, circumstances: str, now: datetime
) -> FailedPlan:
    """The failed plan and its fault, as status keeps them."""
    return FailedPlan(
        hash=terms.hash,
        pool=terms.pool,
        engine=chosen_engine(option),
        accelerator=terms.accelerator,
        tensor_parallel_size=terms.parallelism.tensor,
        pipeline_parallel_size=terms.parallelism.pipeline,
        **optional_sizes(terms.parallelism),
        image=terms.image,
        adjustments=adjustments_status(option.adjustments),
        reason=fault.reason,
        message=truncate(fault.words, _MAX_MESSAGE_BYTES),
        at=format_time(now),
        circumstances=circumstances,
    )


def _shortfall_of(failed: FailedPlan) -> MemoryShortfall | None:
    return read_shortfall(failed.message) if failed.reason == Reason.OUT_OF_MEMORY else None


def _adjustments_of(failed: FailedPlan) -> EngineAdjustments:
    adjustments = failed.adjustments
    return EngineAdjustments(**adjustments.model_dump()) if adjustments else UNADJUSTED


def _is_late(
    observation: Observation, running: ChildDeployment, failure: PodFailure | None, now: datetime
) -> bool:
    """Whether the deadline has passed, by the clock of the controller, or by that of the operator
    where the former tells nothing."""
    if failure is not None and failure.reason is Reason.UNSCHEDULABLE:
        return is_unready_for_long(observation, running, now)
    keeps_failing = failure is not None and failure.reason is Reason.POD_FAILED
    counts_here = keeps_failing or running.overdue is None
    return bool(running.overdue) or (counts_here and is_overdue(observation, running, now))


def _find_refusal(running: ChildDeployment, fleet: Fleet) -> Fault | None:
    """Why the API server refuses all pods. A quota of anything but the pool's GPUs would refuse
    them on every pool."""
    refused = running.refused
    if refused is None or _is_on_every_pool(refused):
        return None
    pool = next((one for one in fleet.pools() if one.name == running.pool), None)
    if _QUOTA in refused and (pool is None or pool.resource not in refused):
        return None
    return Fault(Reason.CHILD_REFUSED, refused)


def _is_on_every_pool(message: str) -> bool:
    return any(text in message for text in _ON_EVERY_POOL)


def _waiting_pods(observation: Observation, running: ChildDeployment) -> set[str]:
    return {
        pod.name
        for pod in observation.pods
        if pod.placement == running.placement and pod.node is None and not pod.deleting
    }


def _lacks_nodes(observation: Observation, running: ChildDeployment, fleet: Fleet) -> bool:
    """Whether a pod waits for a node or is on one without heartbeats: no other plan helps."""
    pods = [pod for pod in observation.pods if pod.placement == running.placement]
    return not pods or any(
        not pod.ready and not pod.deleting and (pod.node is None or fleet.is_silent(pod.node))
        for pod in pods
    )


def _traits(pool: Pool) -> dict[str, object]:
    """The traits of a pool that decide whether a plan can start there."""
    declared = pool.declared
    template = declared.pod_template if declared else None
    return {
        "name": pool.name,
        "accelerator": pool.accelerator.id if pool.accelerator else None,
        "deviceBytes": pool.device_bytes,
        "cuda": None if pool.cuda is None else str(pool.cuda),
        # A field that is not set leaves the traits as an earlier release wrote them.
        "declared": {
            **declared.model_dump(mode="json", include={"env"}),
            "images": declared.images.for_digest(),
            **({"podTemplate": template.as_written()} if template else {}),
        }
        if declared
        else None,
    }
