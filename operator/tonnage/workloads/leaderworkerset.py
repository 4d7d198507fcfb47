"""The LeaderWorkerSet of a placement whose replicas have a pod on each of several nodes.

A replica is a group of the LeaderWorkerSet: a leader, which serves requests, and a worker on each
further node. The engine's own launcher connects them. The controller recreates a group as a whole
when a container of it restarts or a pod is deleted, since neither half goes on without the other.

Source: kubernetes-sigs/lws v0.11.0, api/leaderworkerset/v1/leaderworkerset_types.go; the fields are
those of v0.7.0, too.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from tonnage.api.inference import Rollout
from tonnage.api.names import (
    ANNOTATION_ADMITTED,
    ANNOTATION_POD_TEMPLATE,
    ANNOTATION_RENDERED_FROM,
    ANNOTATION_TEMPLATE,
    LABEL_KUEUE_QUEUE,
    LABEL_OWNER,
    LABEL_PLACEMENT,
    LABEL_TEMPLATE,
    LABEL_WORKER_OF,
)
from tonnage.api.text import digest
from tonnage.engines.inputs import SurgeMode
from tonnage.engines.registry import ENGINE_KINDS, engine_container
from tonnage.kube.kinds import CONTROLLER_REVISIONS, LEADER_WORKER_SETS
from tonnage.kube.protocol import Kind, Object
from tonnage.workloads.controller_revision import read_templates
from tonnage.workloads.interface import (
    Rendering,
    ServingPods,
    WorkloadKind,
    WorkloadState,
    with_spec,
    without_label,
)
from tonnage.workloads.metadata import workload_metadata
from tonnage.workloads.names import leader_worker_set_name
from tonnage.workloads.pod.template import render_pod_template

_SET_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"

_LEADER, _WORKER, _TEMPLATES = "leaderTemplate", "workerTemplate", "leaderWorkerTemplate"
_DEADLINE: Final = "tonnage.dev/progress-deadline-seconds"

_OF_TEMPLATE: Final = {ANNOTATION_RENDERED_FROM, ANNOTATION_POD_TEMPLATE, ANNOTATION_ADMITTED}
"""Annotations about the present template, of which a ControllerRevision keeps none."""

_SERVER_FIELDS: Final = ("ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle")
"""Fields of the engine's container for a server, which a worker is not."""


class LeaderWorkerSetKind(WorkloadKind):
    """LeaderWorkerSets, a group of pods a replica."""

    kind = LEADER_WORKER_SETS

    def name(self, owner: str, placement: str) -> str:
        """The name of the LeaderWorkerSet of a placement."""
        return leader_worker_set_name(owner, placement)

    def render(self, rendering: Rendering) -> Object:
        """Render the LeaderWorkerSet."""
        replica, owner = rendering.replica, rendering.owner
        option = replica.option
        name = self.name(owner.name, option.placement_name)
        metadata = workload_metadata(name, replica, rendering.placement_digest)
        body: Object = {
            "apiVersion": f"{LEADER_WORKER_SETS.group}/{LEADER_WORKER_SETS.version}",
            "kind": LEADER_WORKER_SETS.kind,
            "metadata": metadata,
            "spec": {
                "replicas": rendering.replicas,
                _TEMPLATES: {
                    "size": option.parallelism.nodes,
                    "restartPolicy": "RecreateGroupOnPodRestart",
                },
                # With LeaderReady, the leader would wait for workers that wait for the leader.
                "startupPolicy": "LeaderCreated",
                "networkConfig": {"subdomainPolicy": "Shared"},
            },
        }
        network = option.pool.network
        template = render_pod_template(replica)
        if network is not None and network.topology_key is not None:
            template = _in_one_domain(template, name, network.topology_key)
        body = self.with_template(body, template)
        body = self.with_deadline(body, rendering.deadline_seconds)
        # Which controller will run it is not known yet.
        return self.with_surge_mode(body, SurgeMode.ONE_BY_ONE, rendering.rollout)

    def template(self, body: Object) -> Object:
        """The leader's template without the label that names it."""
        template = (body["spec"].get(_TEMPLATES) or {}).get(_LEADER) or {}
        return without_label(template, LABEL_TEMPLATE)

    def template_name(self, body: Object) -> str | None:
        """The digest that the operator writes."""
        leader = (body["spec"].get(_TEMPLATES) or {}).get(_LEADER) or {}
        name = ((leader.get("metadata") or {}).get("labels") or {}).get(LABEL_TEMPLATE)
        return name if isinstance(name, str) else ""

    def with_template(self, body: Object, template: Object) -> Object:
        """The LeaderWorkerSet with other templates of leader and workers."""
        # Kueue reads its label of the LeaderWorkerSet and takes care of the pods.
        labels = template["metadata"].get("labels") or {}
        own = {key: value for key, value in labels.items() if key != LABEL_KUEUE_QUEUE}
        leader = {**template, "metadata": {**template["metadata"], "labels": own}}
        named = _with_labels(leader, {**own, LABEL_TEMPLATE: digest(leader)})
        templates = body["spec"].get(_TEMPLATES) or {}
        changed = {**templates, _LEADER: named, _WORKER: _as_worker(named)}
        return with_spec(body, **{_TEMPLATES: changed})

    def with_templates_of(self, body: Object, source: Object) -> Object:
        """The LeaderWorkerSet with the templates of another one, and the label that names them: a
        digest of what the API server has filled in would be another one."""
        return with_spec(body, **{_TEMPLATES: source["spec"][_TEMPLATES]})

    def selector(self, body: Object) -> Mapping[str, str]:
        """The name of the LeaderWorkerSet, which its controller writes onto leaders and workers,
        and the placement."""
        metadata = body["metadata"]
        placement = (metadata.get("labels") or {}).get(LABEL_PLACEMENT, "")
        return {_SET_NAME: metadata["name"], LABEL_PLACEMENT: placement}

    def pods_per_replica(self, body: Object) -> int:
        """The size of a group."""
        size = (body["spec"].get(_TEMPLATES) or {}).get("size")
        return size if type(size) is int else 1

    def pod_labels(self, body: Object) -> tuple[Mapping[str, str], ...]:
        """The labels of leaders, and those of workers."""
        templates, name = body["spec"].get(_TEMPLATES) or {}, body["metadata"]["name"]
        metadata = (
            (templates.get(role) or {}).get("metadata") or {} for role in (_LEADER, _WORKER)
        )
        return tuple({**(each.get("labels") or {}), _SET_NAME: name} for each in metadata)

    def revisions(self, body: Object) -> tuple[Kind, Mapping[str, str]]:
        """ControllerRevisions with the name of the LeaderWorkerSet."""
        return CONTROLLER_REVISIONS, {_SET_NAME: body["metadata"]["name"]}

    def at_revision(self, body: Object, revision: Object) -> Object | None:
        """The LeaderWorkerSet with the templates that a ControllerRevision keeps. Of the
        annotations about them, only the name of the template is known, by a label of it."""
        templates = read_templates(revision)
        present = body["spec"].get(_TEMPLATES) or {}
        # A placement on another number of nodes is another LeaderWorkerSet.
        if templates is None or templates["size"] != present.get("size"):
            return None
        earlier = with_spec(body, **{_TEMPLATES: templates})
        metadata = body["metadata"]
        annotations = {
            name: value
            for name, value in (metadata.get("annotations") or {}).items()
            if name not in _OF_TEMPLATE
        }
        annotations[ANNOTATION_TEMPLATE] = self.template_name(earlier)
        return {**earlier, "metadata": {**metadata, "annotations": annotations}}

    def replicas_to_keep(self, body: Object, ready: Collection[str], count: int) -> int:
        """More where groups before a ready one are not ready: the controller stops the groups with
        the highest indices, whatever their state. Groups beyond the requested ones are those of a
        surge, which end with it."""
        leaders = f"{body['metadata']['name']}-"
        numbers = (
            int(name.removeprefix(leaders)) for name in ready if _is_leader_of(name, leaders)
        )
        requested = body["spec"].get("replicas", 1)
        kept = sorted(number for number in numbers if number < requested)[:count]
        return max(count, kept[-1] + 1) if kept else count

    def can_surge(self, body: Object) -> bool:
        """Whether the controller is of v0.9.0 or later, the first that writes `observedGeneration`.

        Earlier ones never begin a surge where maxSurge is not below the number of replicas, and do
        not end one with maxUnavailable 0 (kubernetes-sigs/lws #491, #778).
        """
        return "observedGeneration" in (body.get("status") or {})

    def surge_mode(self, body: Object, rollout: Rollout) -> SurgeMode | None:
        """The mode of the strategy; None where a user wrote another strategy."""
        strategy = body["spec"].get("rolloutStrategy") or {}
        rolling = dict(strategy.get("rollingUpdateConfiguration") or {})
        rolling.pop("partition", None)
        return next((mode for mode in SurgeMode if _rolling_update(mode, rollout) == rolling), None)

    def with_surge_mode(self, body: Object, mode: SurgeMode, rollout: Rollout) -> Object:
        """The LeaderWorkerSet with another strategy."""
        strategy = {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": _rolling_update(mode, rollout),
        }
        return with_spec(body, rolloutStrategy=strategy)

    def is_paused(self, body: Object) -> bool:
        """Whether all groups are below the partition, so that none is replaced."""
        strategy = body["spec"].get("rolloutStrategy") or {}
        partition = (strategy.get("rollingUpdateConfiguration") or {}).get("partition") or 0
        return bool(partition)

    def with_pause(self, body: Object, *, paused: bool) -> Object:
        """The LeaderWorkerSet with a partition above all groups, or below them."""
        strategy = body["spec"]["rolloutStrategy"]
        partition = max(1, body["spec"].get("replicas", 1)) if paused else 0
        rolling = {**strategy.get("rollingUpdateConfiguration", {}), "partition": partition}
        return with_spec(body, rolloutStrategy={**strategy, "rollingUpdateConfiguration": rolling})

    def deadline_seconds(self, body: Object) -> int | None:
        """The progress deadline, which an annotation has: the kind has no such field."""
        text = (body["metadata"].get("annotations") or {}).get(_DEADLINE, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS else None

    def with_deadline(self, body: Object, seconds: int) -> Object:
        """The LeaderWorkerSet with another progress deadline."""
        metadata = body["metadata"]
        annotations = {**(metadata.get("annotations") or {}), _DEADLINE: str(seconds)}
        return {**body, "metadata": {**metadata, "annotations": annotations}}

    def rendered_spec(self, body: Object) -> Object:
        """The fields that are rendered, without replicas, templates and a pause."""
        spec = body["spec"]
        kept = {name: spec[name] for name in ("startupPolicy", "networkConfig") if name in spec}
        templates = spec.get(_TEMPLATES) or {}
        kept[_TEMPLATES] = {
            name: templates[name] for name in ("size", "restartPolicy") if name in templates
        }
        strategy = spec.get("rolloutStrategy") or {}
        rolling = dict(strategy.get("rollingUpdateConfiguration") or {})
        rolling.pop("partition", None)
        return {**kept, "rolloutStrategy": {**strategy, "rollingUpdateConfiguration": rolling}}

    def without_template(self, body: Object) -> Object:
        """The LeaderWorkerSet without the templates of leader and workers."""
        templates = body["spec"].get(_TEMPLATES) or {}
        others = {
            name: value for name, value in templates.items() if name not in (_LEADER, _WORKER)
        }
        return with_spec(body, **{_TEMPLATES: others})

    def read_state(
        self, body: Object, pods: ServingPods | None, *, is_observed: bool
    ) -> WorkloadState:
        """Read what the controller reports, and what the pods say, which name their template: a
        status of v0.7.0 does not say which generation it is about."""
        status: Mapping[str, Any] = body.get("status") or {}
        existing, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
        ready, wanted = status.get("readyReplicas", 0), body["spec"].get("replicas", 1)
        updated_ready = ready
        if pods is not None:
            existing, updated = pods.existing, pods.updated
            updated_ready, ready = min(ready, pods.updated_ready), min(ready, pods.ready)
        completed = updated == existing == wanted and updated_ready >= wanted
        return WorkloadState(
            existing=existing,
            ready=ready,
            updated=updated,
            observed=is_observed or pods is not None,
            completed=completed,
            has_served=completed,
        )


_MAX_DIGITS: Final = 11


def leader_of(labels: Mapping[str, str]) -> str | None:
    """The name of the leader of the group of a pod with these labels; None outside a group."""
    name, index = labels.get(_SET_NAME), labels.get(_GROUP_INDEX)
    return f"{name}-{index}" if name and index else None


def _is_leader_of(name: str, prefix: str) -> bool:
    index = name.removeprefix(prefix)
    return index != name and index.isascii() and index.isdigit() and len(index) < _MAX_DIGITS


def _rolling_update(mode: SurgeMode, rollout: Rollout) -> dict[str, Any]:
    match mode:
        case SurgeMode.ALL_AT_ONCE:
            return {"maxSurge": 0, "maxUnavailable": "100%"}
        case SurgeMode.SURGE:
            return {"maxSurge": 1, "maxUnavailable": 0}
        case SurgeMode.ONE_BY_ONE:
            return {"maxSurge": 0, "maxUnavailable": rollout.max_unavailable or 1}


def _in_one_domain(template: Object, name: str, topology_key: str) -> Object:
    """The template with an affinity to the pods of the same group, by the topology label.

    Not the annotation exclusive-topology, which allows only one group in each domain.
    """
    term = {
        "labelSelector": {"matchLabels": {_SET_NAME: name}},
        "matchLabelKeys": [_GROUP_INDEX],
        "topologyKey": topology_key,
    }
    spec = template["spec"]
    affinity = spec.get("affinity") or {}
    pod_affinity = affinity.get("podAffinity") or {}
    required = [*(pod_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []), term]
    pod_affinity = {**pod_affinity, "requiredDuringSchedulingIgnoredDuringExecution": required}
    return {**template, "spec": {**spec, "affinity": {**affinity, "podAffinity": pod_affinity}}}


def _as_worker(leader: Object) -> Object:
    """The template of the pods on a replica's further nodes. They have no server, and other labels,
    so that no Service, budget or gateway selects them."""
    worker: Object = _copied(leader)
    labels = worker["metadata"]["labels"]
    worker["metadata"]["labels"] = {
        **{key: value for key, value in labels.items() if key != LABEL_OWNER},
        LABEL_WORKER_OF: labels[LABEL_OWNER],
    }
    container = engine_container(worker["spec"])
    if container is not None:
        for name in _SERVER_FIELDS:
            container.pop(name, None)
        engine = ENGINE_KINDS[container["name"]]
        container["args"] = engine.render_worker_arguments(container["args"])
    return worker


def _copied(value: Any) -> Any:
    """A copy of a JSON value. Each plan renders templates, and copy.deepcopy takes far longer."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _with_labels(template: Object, labels: Mapping[str, str]) -> Object:
    return {**template, "metadata": {**template["metadata"], "labels": dict(labels)}}
