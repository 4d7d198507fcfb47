"""The kinds of workloads, and which of them runs a replica."""

from collections.abc import Mapping
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import LABEL_TEMPLATE
from tonnage.catalog.catalog import Catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.engines.inputs import Owner, RenderSettings, SurgeMode
from tonnage.engines.lifetime import download_seconds, progress_deadline_seconds
from tonnage.engines.model_source import medium_of
from tonnage.engines.replica import Replica
from tonnage.kube.protocol import Kind, Object
from tonnage.placement.model import Option
from tonnage.workloads.deployment import TEMPLATE_LABEL, DeploymentKind
from tonnage.workloads.interface import Rendering, WorkloadKind
from tonnage.workloads.leaderworkerset import LeaderWorkerSetKind, leader_of

_ONE_NODE: Final[WorkloadKind] = DeploymentKind()
_SEVERAL_NODES: Final[WorkloadKind] = LeaderWorkerSetKind()

WORKLOAD_KINDS: Final[tuple[Kind, ...]] = (_ONE_NODE.kind, _SEVERAL_NODES.kind)

_BY_NAME: Final = {each.kind.kind: each for each in (_ONE_NODE, _SEVERAL_NODES)}


def workload_kind_for(nodes: int) -> WorkloadKind:
    """The kind that runs replicas on so many nodes each."""
    return _SEVERAL_NODES if nodes > 1 else _ONE_NODE


def workload_kind_of(body: Object) -> WorkloadKind:
    """The kind of a workload."""
    return _BY_NAME.get(body.get("kind", ""), _ONE_NODE)


def template_of_pod(labels: Mapping[str, str]) -> str:
    """What names the template of a pod with these labels, among the pods of its placement."""
    return labels.get(LABEL_TEMPLATE) or labels.get(TEMPLATE_LABEL, "")


def replica_of_pod(name: str, labels: Mapping[str, str]) -> str:
    """The name of the pod that serves for the replica that a pod belongs to: its own on one node,
    that of the leader of its group on several."""
    return leader_of(labels) or name


def is_in_group(labels: Mapping[str, str]) -> bool:
    """Whether a pod with these labels is deleted with its whole replica when a container of it
    restarts."""
    return leader_of(labels) is not None


def render_workload(
    owner: Owner,
    spec: InferenceDeploymentSpec,
    checkpoint: Checkpoint,
    option: Option,
    *,
    replicas: int,
    surge: SurgeMode,
    placement_digest: str,
    catalog: Catalog,
    settings: RenderSettings,
) -> Object:
    """The workload that runs `replicas` copies of the model in the pool of `option`.

    `placement_digest` is a digest of the inputs of the placement; the next reconcile reads it back.
    `spec` must have passed `check_template`.
    """
    spec = spec.with_engine(option.engine)
    replica = Replica(owner, spec, checkpoint, option, catalog, settings)
    medium, size = medium_of(spec), replica.model_gib
    download = download_seconds(replica.weights_bytes) if spec.model.is_on_node_disk else 0
    deadline = progress_deadline_seconds(size, medium, replica.vendor, spec.rollout, download)
    rendering = Rendering(replica, replicas, surge, deadline, placement_digest)
    return workload_kind_for(option.parallelism.nodes).render(rendering)
