"""What is said of replicas that run by the last plan that served, since another one failed."""

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.status import FailedPlan, LastReadyPlan, PlacementStatus
from tonnage.fit.model import Parallelism
from tonnage.placement.messages import format_split
from tonnage.reconcile.findings import Finding
from tonnage.reconcile.rollback import WayBack


def find_rolled_back(back: WayBack, available: Finding) -> list[Finding]:
    """The conditions from Progressing on."""
    told = tell_rolled_back(back.failed, back.last)
    done = back.is_complete
    if done:
        progressing = Finding(ConditionType.PROGRESSING, False, Reason.WAITING, f"waiting: {told}")
    else:
        count = f"{back.live.ready} of {back.replicas} replicas are ready"
        returning = f"going back to plan {back.last.hash}: {count}"
        progressing = Finding(ConditionType.PROGRESSING, True, Reason.ROLLING_OUT, returning)
    return [
        progressing,
        available,
        Finding(ConditionType.READY, False, Reason.ROLLED_BACK, told),
        Finding(
            ConditionType.RECONCILING, progressing.holds, progressing.reason, progressing.message
        ),
        Finding(ConditionType.STALLED, done, Reason.ROLLED_BACK, told),
        Finding(ConditionType.DEGRADED, True, Reason.ROLLED_BACK, told),
    ]


def rolled_back_placement(back: WayBack) -> PlacementStatus:
    """The placement that the replicas are on again, as it was reported when it served."""
    message = f"returned to, since plan {back.failed.hash} failed: {back.last.placement.message}"
    return back.last.placement.model_copy(
        update={
            "replicas": back.replicas,
            "ready_replicas": back.live.ready,
            "reason": Reason.ROLLED_BACK.value,
            "message": message,
        }
    )


def tell_rolled_back(failed: FailedPlan, last: LastReadyPlan) -> str:
    """What failed and why, what runs instead, and until when."""
    return (
        f"{_name(failed.hash, failed)} failed: {failed.reason}: {failed.message};"
        f" {_name(last.hash, last.placement)} runs in its stead; the failed one is tried again when"
        " the spec, the fleet or a version changes"
    )


def _name(plan: str, place: FailedPlan | PlacementStatus) -> str:
    split = Parallelism(place.tensor_parallel_size, place.pipeline_parallel_size)
    return f"plan {plan} (pool {place.pool}, {format_split(split)}, {place.image})"
