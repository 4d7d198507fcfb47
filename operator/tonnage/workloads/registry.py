"""The kinds of workloads, and which of them runs a replica."""

from collections.abc import Mapping
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import LABEL_TEMPLATE
from tonnage.catalog.catalog import Catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.engines.inputs import Owner, RenderSettings, SurgeMode
from tonnage.engines.replica import Replica
from tonnage.engines.vllm.lifetime import progress_deadline_seconds
from tonnage.kube.protocol import Kind, Object
from tonnage.placement.model import Option
from tonnage.workloads.deployment import TEMPLATE_LABEL, DeploymentKind
from tonnage.workloads.interface import Rendering, WorkloadKind
from tonnage.workloads.leaderworkerset import LeaderWorkerSetKind

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
    replica = Replica(owner, spec, checkpoint, option, catalog, settings)
    deadline = progress_deadline_seconds(replica.model_gib, replica.vendor, spec.rollout)
    rendering = Rendering(replica, replicas, surge, deadline, placement_digest)
    return workload_kind_for(option.parallelism.nodes).render(rendering)
