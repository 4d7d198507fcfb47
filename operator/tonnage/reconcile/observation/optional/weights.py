"""The checkpoint that a Job downloads for an object: its commit, the Job, and the claim.

All replicas load the commit that the Service's annotation names, whatever the branch names by now.
It was written before the Job was made, so no crash and no push to the repository begins another
download.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import ANNOTATION_MODEL_COMMIT, ANNOTATION_MODEL_FACTS
from tonnage.api.text import read_json_object
from tonnage.checkpoint.kept_facts import decode_facts
from tonnage.checkpoint.lookup import ModelAnswer
from tonnage.checkpoint.model import Checkpoint
from tonnage.engines.inputs import Owner
from tonnage.engines.model_source import cached_path, loaded_model
from tonnage.engines.quantity import parse_quantity, read_quantity
from tonnage.engines.registry import engine_container
from tonnage.fleet.devices.resources import as_mapping, as_sequence
from tonnage.kube.kinds import PERSISTENT_VOLUME_CLAIMS
from tonnage.kube.protocol import (
    ApiError,
    ClusterReader,
    ForbiddenError,
    NotFoundError,
    Object,
)
from tonnage.reconcile.observation.children import (
    Child,
    ChildDeployment,
    is_controlled_by,
    read_child,
)
from tonnage.reconcile.observation.optional.download_jobs import (
    DownloadJob,
    ReadDownload,
    read_job,
    read_no_download,
)
from tonnage.workloads.pod.volumes import MODEL_VOLUME
from tonnage.workloads.prefetch_job import prefetch_node_of
from tonnage.workloads.weights_job import wanted_weights_job

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")

MOST_PREFETCH_JOBS: Final = 128
"""Of an object with more of them, no pods are read."""


@dataclass(frozen=True, slots=True)
class PrefetchJob:
    """A Job that downloads a checkpoint to the disk of a node."""

    node: str
    job: DownloadJob


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim: `phase` as in its status, what it may be mounted as, and its size in
    bytes, None where that is unknown."""

    phase: str
    access_modes: tuple[str, ...]
    volume_mode: str
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class ObservedWeights:
    """What exists for spec.model.cache.

    `jobs` are the Jobs of the object that download to a claim, `prefetch_jobs` those that download
    to nodes. `newest_commit` is the commit that the revision names now,
    None where the replicas load it. While no workload loads the checkpoint, `job` is the Job that
    downloads it; and before there is one, `claim` is the claim of the cache, None where there is
    none. `is_claim_known`: the operator may read it. `claim_error` is why it could not be read this
    time.
    """

    jobs: tuple[Child, ...] = ()
    newest_commit: str | None = None
    job: DownloadJob | None = None
    claim: Claim | None = None
    is_claim_known: bool = True
    claim_error: str | None = None
    prefetch_jobs: tuple[PrefetchJob, ...] = ()


NO_WEIGHTS: Final = ObservedWeights()


def commit_annotation(spec: InferenceDeploymentSpec, commit: str) -> dict[str, str]:
    """The annotation of the Service that keeps the commit for these fields of the spec."""
    values = {**_pinned_for(spec), "commit": commit}
    return {ANNOTATION_MODEL_COMMIT: json.dumps(values, separators=(",", ":"))}


def kept_commit(spec: InferenceDeploymentSpec, service: Child | None) -> str | None:
    """The commit that the replicas keep; None where the user asks for the newest one: with another
    source, or another time of the upgrade."""
    text = _annotations(service).get(ANNOTATION_MODEL_COMMIT, "")
    values = read_json_object(text) or {}
    commit = values.pop("commit", None)
    is_commit = isinstance(commit, str) and _COMMIT.fullmatch(commit) is not None
    return commit if is_commit and values == _pinned_for(spec) else None


def loaded_commit(
    spec: InferenceDeploymentSpec, deployments: Iterable[ChildDeployment]
) -> str | None:
    """The commit that all workloads load from the cache; None where they load none, or several."""
    hub = spec.model.source.hugging_face
    if hub is None or not spec.model.keeps_commit:
        return None
    folder = cached_path(hub.repo, "")
    commits = {
        path.removeprefix(folder)
        for one in deployments
        if isinstance(path := _loaded_path(one.pod_template), str) and path.startswith(folder)
    }
    commit = commits.pop() if len(commits) == 1 else ""
    return commit if _COMMIT.fullmatch(commit) else None


async def hold_commit(
    spec: InferenceDeploymentSpec,
    service: Child | None,
    answer: ModelAnswer,
    ask: Callable[[str], Awaitable[ModelAnswer]],
    loaded: str | None = None,
) -> tuple[ModelAnswer, str | None]:
    """The model at the commit that the replicas keep, and the commit that the revision names now
    where that is another one; the answer as it is where no commit is kept. `ask` looks up the model
    at a commit. `loaded` is what the workloads of an unchanged spec load, which is kept where the
    Service was deleted."""
    commit = None
    if spec.model.keeps_commit:
        has_kept = ANNOTATION_MODEL_COMMIT in _annotations(service)
        commit = kept_commit(spec, service) if has_kept else loaded
    if commit is None:
        return answer, None
    newest = answer.revision if isinstance(answer, Checkpoint) else None
    if newest == commit:
        return answer, None
    return _kept_at_commit(spec, service, commit) or await ask(commit), newest


async def read_weights(
    live: ClusterReader,
    bodies: Iterable[Object],
    spec: InferenceDeploymentSpec,
    model: ModelAnswer | None,
    owner: Owner,
    deployments: Iterable[ChildDeployment],
    read_download: ReadDownload = read_no_download,
) -> ObservedWeights:
    """Read what exists for the cache of a spec; `bodies` are the Jobs of its owner.

    Pods and the claim are read live, and only explain. So an API server that does not answer leaves
    their part unknown, and all else of the object goes on.
    """
    own = [body for body in bodies if is_controlled_by(body, owner.uid)]
    prefetching = await _read_prefetch_jobs(live, own)
    jobs = tuple(read_child(body) for body in own if prefetch_node_of(body) is None)
    weights = await _read_downloads(live, jobs, spec, model, owner, deployments, read_download)
    return replace(weights, prefetch_jobs=prefetching)


async def _read_prefetch_jobs(
    live: ClusterReader, bodies: Iterable[Object]
) -> tuple[PrefetchJob, ...]:
    """Read the Jobs that download to nodes, by node."""
    named = [(node, body) for body in bodies if (node := prefetch_node_of(body)) is not None]
    named.sort(key=lambda one: (one[0], one[1]["metadata"]["name"]))
    # A user can make thousands of Jobs that the object controls, and each costs a request.
    read_pods = live if len(named) <= MOST_PREFETCH_JOBS else None
    return tuple(
        [
            PrefetchJob(node, await read_job(read_pods, body, read_no_download))
            for node, body in named
        ]
    )


async def _read_downloads(
    live: ClusterReader,
    jobs: tuple[Child, ...],
    spec: InferenceDeploymentSpec,
    model: ModelAnswer | None,
    owner: Owner,
    deployments: Iterable[ChildDeployment],
    read_download: ReadDownload,
) -> ObservedWeights:
    """Read what exists for a claim."""
    commit = model.revision if isinstance(model, Checkpoint) else None
    name, claim = wanted_weights_job(owner, spec, commit), spec.model.cache_claim
    if name is None or claim is None or is_loaded(spec, commit, deployments):
        return ObservedWeights(jobs)
    body = next((job.body for job in jobs if job.name == name), None)
    if body is not None:
        return ObservedWeights(jobs, job=await read_job(live, body, read_download))
    try:
        return ObservedWeights(jobs, claim=await _read_claim(live, owner.namespace, claim))
    except ForbiddenError:
        return ObservedWeights(jobs, is_claim_known=False)
    except ApiError as error:
        return ObservedWeights(jobs, claim_error=str(error))


def _kept_at_commit(
    spec: InferenceDeploymentSpec, service: Child | None, commit: str
) -> Checkpoint | None:
    """The facts that an earlier answer of the Hub left on the Service, if they are of this
    commit."""
    hub, text = spec.model.source.hugging_face, _annotations(service).get(ANNOTATION_MODEL_FACTS)
    if hub is None or text is None:
        return None
    kept = (decode_facts(text, hub.repo, revision) for revision in (hub.revision, commit))
    return next((each for each in kept if each is not None and each.revision == commit), None)


def is_loaded(
    spec: InferenceDeploymentSpec, commit: str | None, deployments: Iterable[ChildDeployment]
) -> bool:
    """Whether a workload of the object already loads the checkpoint from its cache: it was made
    after the download."""
    path, claim = loaded_model(spec, "", commit), spec.model.cache_claim
    return any(_loads(one.pod_template, path, claim) for one in deployments)


async def _read_claim(live: ClusterReader, namespace: str, name: str) -> Claim | None:
    """Read the claim; None where there is none. Raises ApiError."""
    try:
        body = await live.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
    except NotFoundError:
        return None
    spec, status = as_mapping(body.get("spec")), as_mapping(body.get("status"))
    requested = as_mapping(as_mapping(spec.get("resources")).get("requests"))
    size = as_mapping(status.get("capacity")).get("storage") or requested.get("storage")
    text = read_quantity(size)
    return Claim(
        phase=str(status.get("phase") or "Pending"),
        access_modes=tuple(map(str, as_sequence(spec.get("accessModes")))),
        volume_mode=str(spec.get("volumeMode") or "Filesystem"),
        size_bytes=None if text is None else int(parse_quantity(text)),
    )


def _pinned_for(spec: InferenceDeploymentSpec) -> dict[str, str | None]:
    """The fields by which a user asks for the newest commit."""
    hub = spec.model.source.hugging_face
    return {
        "repo": hub.repo if hub else None,
        "revision": hub.revision if hub else None,
        "upgradedAt": spec.rollout.upgraded_at,
    }


def _annotations(service: Child | None) -> Mapping[str, str]:
    return (service.body["metadata"].get("annotations") or {}) if service else {}


def _loads(template: Object, path: str, claim: str | None) -> bool:
    pod = as_mapping(template.get("spec"))
    volumes = map(as_mapping, as_sequence(pod.get("volumes")))
    claims = (
        as_mapping(each.get("persistentVolumeClaim")).get("claimName")
        for each in volumes
        if each.get("name") == MODEL_VOLUME
    )
    return path == _loaded_path(template) and claim in claims


def _loaded_path(template: Object) -> object:
    """What the engine of a pod template loads: its first argument."""
    container = engine_container(as_mapping(template.get("spec"))) or {}
    return next(iter(as_sequence(container.get("args"))), None)
