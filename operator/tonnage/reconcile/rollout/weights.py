"""Plan the Job that downloads a checkpoint to the cache of an object. Pure.

A workload that loads the checkpoint is made once the Job has succeeded, so no GPU is held idle for
a download. What runs goes on meanwhile. A Job whose attempts have all failed is followed by another
one some minutes later, which continues the download.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.api.parse import InvalidSpecError
from tonnage.checkpoint.model import Checkpoint
from tonnage.engines.replica import Replica
from tonnage.fit.messages import GIB
from tonnage.fleet.devices.resources import as_sequence
from tonnage.kube.kinds import JOBS, SERVICES
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Apply, Delete, apply_if_changed
from tonnage.reconcile.observation.findings import format_age, format_time, shorten
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.download_jobs import DownloadJob, is_active
from tonnage.reconcile.observation.optional.weights import Claim, is_loaded
from tonnage.reconcile.rollout.job_inputs import has_other_inputs, with_inputs
from tonnage.reconcile.rollout.services import make_service
from tonnage.reconcile.scheduling.context import ReconcileContext, owner_of
from tonnage.reconcile.scheduling.outcome import Scheduled
from tonnage.workloads.weights_job import render_weights_job, wanted_weights_job

_WRITABLE: Final = frozenset({"ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"})


@dataclass(frozen=True, slots=True)
class MissingWeights:
    """Why no workload can load the checkpoint yet, and what is done about it.

    `is_lasting`: it stays so until something changes. `children` has the Job as rendered, where one
    is made.
    """

    reason: Reason
    message: str
    is_lasting: bool = False
    actions: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()
    again_seconds: float = delays.REQUEUE_UNWATCHED


def find_missing_weights(context: ReconcileContext, placed: Scheduled) -> MissingWeights | None:
    """What is missing for the placement; None where its pods can load the checkpoint."""
    observation, spec = context.observation, context.spec
    commit, live = context.accepted.checkpoint.revision, observation.weights.job
    claim = spec.model.cache_claim
    is_there = live is not None and (live.is_complete or live.has_downloaded)
    if claim is None or is_there or is_loaded(spec, commit, observation.deployments):
        return None
    replica = Replica(
        owner_of(observation),
        context.spec_on(placed.option.engine),
        context.accepted.checkpoint,
        placed.option,
        context.catalog,
        context.dependencies.settings,
    )
    job = with_inputs(render_weights_job(replica), replica)
    if live is not None:
        return _describe_live(context, live, _describe_download(replica, claim), job)
    name = f"PersistentVolumeClaim {observation.key.namespace}/{claim}"
    if observation.weights.claim_error is not None:
        message = f"{name} could not be read: {observation.weights.claim_error}"
        return MissingWeights(Reason.WEIGHTS_NOT_DOWNLOADED, message)
    problem = _find_claim_problem(observation, context.accepted.checkpoint.weights_bytes)
    if problem is not None:
        message = f"{name} {problem}"
        return MissingWeights(Reason.WEIGHTS_NOT_DOWNLOADED, message, is_lasting=True)
    return MissingWeights(
        Reason.DOWNLOADING_WEIGHTS,
        f"{_describe_download(replica, claim)} (Job {job['metadata']['name']})",
        actions=(
            # First, since it keeps the commit that the Job downloads.
            *apply_if_changed(SERVICES, make_service(observation), observation.service),
            Apply(JOBS, job, exists=False),
        ),
        children=(job,),
    )


def delete_unwanted_jobs(observation: Observation) -> Iterator[Delete]:
    """Delete the Jobs that download what the spec does not ask for any more, and those that have
    not ended though a workload loads the checkpoint: a container in their pods never ends."""
    spec, model = observation.spec, observation.model
    if isinstance(spec, InvalidSpecError):
        return
    if spec.model.cache_claim is not None and not isinstance(model, Checkpoint):
        return
    commit = model.revision if isinstance(model, Checkpoint) else None
    wanted = wanted_weights_job(owner_of(observation), spec, commit)
    is_needless = is_loaded(spec, commit, observation.deployments)
    for child in observation.weights.jobs:
        is_unwanted = child.name != wanted or (is_needless and is_active(child))
        if is_unwanted and not child.is_ending:
            yield Delete(JOBS, child)


def _describe_live(
    context: ReconcileContext, live: DownloadJob, download: str, job: Object
) -> MissingWeights:
    name, since = live.child.name, format_time(live.created)
    if live.child.is_ending:
        # Its end is an event. A finalizer may delay it for long.
        return MissingWeights(
            Reason.WEIGHTS_NOT_DOWNLOADED,
            f"Job {name} is being deleted{_describe_finalizers(live)}; another Job is made then",
            is_lasting=live.failed is not None,
            children=(job,),
        )
    if has_other_inputs(live, job):
        return MissingWeights(
            Reason.DOWNLOADING_WEIGHTS,
            f"Job {name} is replaced: the image or the token has changed",
            actions=(Delete(JOBS, live.child),),
            children=(job,),
        )
    if live.failed is not None:
        retry_at = live.failed + timedelta(seconds=delays.DOWNLOAD_RETRY)
        remaining = (retry_at - context.now).total_seconds()
        is_due = remaining <= 0
        return MissingWeights(
            Reason.WEIGHTS_NOT_DOWNLOADED,
            f"Job {name}: {live.cause}; another Job is made at {format_time(retry_at)}",
            is_lasting=True,
            actions=(Delete(JOBS, live.child),) if is_due else (),
            children=(job,),
            again_seconds=delays.REQUEUE_UNWATCHED if is_due else remaining,
        )
    if live.cause is not None:
        message = f"Job {name}: {live.cause}{'' if live.is_held else '; the Job goes on trying'}"
        return MissingWeights(Reason.WEIGHTS_NOT_DOWNLOADED, message, children=(job,))
    message = f"{download} since {since} (Job {name}){_describe_progress(live)}"
    return MissingWeights(Reason.DOWNLOADING_WEIGHTS, message, children=(job,))


def _describe_finalizers(live: DownloadJob) -> str:
    finalizers = as_sequence(live.child.body["metadata"].get("finalizers"))
    named = shorten(", ".join(map(str, finalizers)))
    return f" and waits for its finalizers ({named})" if named else ""


def _describe_progress(live: DownloadJob) -> str:
    progress = live.progress
    if progress is None:
        return ""
    words = f": {progress.present / GIB:.1f} of {progress.total / GIB:.1f} GiB are there"
    return words + (f", about {format_age(progress.remaining)} left" if progress.remaining else "")


def _describe_download(replica: Replica, claim: str) -> str:
    hub, commit = replica.spec.model.source.hugging_face, replica.checkpoint.revision or ""
    assert hub is not None, "a cache without a repository passed validation"
    size = replica.weights_bytes / GIB
    return (
        f"downloading {size:.1f} GiB of {hub.repo} at commit {commit[:12]} to"
        f" PersistentVolumeClaim {claim}"
    )


def _find_claim_problem(observation: Observation, weights_bytes: int | None) -> str | None:
    """Why nothing can be downloaded to the claim; None where nothing is known to prevent it."""
    if not observation.weights.is_claim_known:
        return None
    claim = observation.weights.claim
    if claim is None:
        return "not found; create it"
    return _why_unusable(claim) or _why_too_small(claim, weights_bytes)


def _why_unusable(claim: Claim) -> str | None:
    if claim.phase == "Lost":
        return "has lost its volume; create the claim again"
    if claim.volume_mode != "Filesystem":
        return f"has volumeMode {claim.volume_mode}; expected Filesystem"
    if not _WRITABLE.intersection(claim.access_modes):
        modes = ", ".join(claim.access_modes) or "none"
        return f"has accessModes {modes}; expected ReadWriteMany, or ReadWriteOnce for one node"
    return None


def _why_too_small(claim: Claim, weights_bytes: int | None) -> str | None:
    if claim.size_bytes is None or weights_bytes is None or weights_bytes <= claim.size_bytes:
        return None
    return (
        f"has {claim.size_bytes / GIB:.1f} GiB, and the weights take {weights_bytes / GIB:.1f} GiB;"
        " enlarge the claim, or use a larger one"
    )
