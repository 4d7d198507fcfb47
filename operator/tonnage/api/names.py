"""Names in the cluster: API group, label keys, annotations and field managers."""

from collections.abc import Mapping
from typing import Any, Final

GROUP: Final = "tonnage.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

INFERENCE_DEPLOYMENT: Final = "InferenceDeployment"
ACCELERATOR_POOL: Final = "AcceleratorPool"

INFERENCE_DEPLOYMENT_WORDS: Final = ("infd", "inferencedeployment", "inferencedeployments")
"""Names that kubectl accepts for the kind."""

LABEL_OWNER: Final = f"{GROUP}/inferencedeployment"
"""On every child and pod: the name of its InferenceDeployment."""

LABEL_PLACEMENT: Final = f"{GROUP}/placement"
"""On every child Deployment and pod: the name of its placement."""

LABEL_WORKER_OF: Final = f"{GROUP}/worker-of"
"""On the pods of a replica's further nodes, in place of LABEL_OWNER: they serve no requests, and no
Service selects them."""

ADAPTER_GROUP: Final = f"adapter.{GROUP}"
"""Group of a label for each LoRA adapter that a pod serves."""

LABEL_LORA_UPDATES: Final = f"{GROUP}/lora-updates"
"""On pods that load and unload LoRA adapters while they run: Live."""

LABEL_TEMPLATE: Final = f"{GROUP}/template"
"""On the pods of a LeaderWorkerSet: digest of their template."""

LABEL_CONTEXT: Final = f"{GROUP}/context"
"""On the Services, Deployments and pods of an endpoint by request length, and on the
InferenceDeployment for long requests: short or long."""

LABEL_SHARD: Final = f"{GROUP}/shard"
"""On a Node, an AcceleratorPool, an InferenceDeployment and its children: the operator that manages
the object. Without the label, the operator without a shard manages it."""

LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "tonnage"

LABEL_KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Label of Kueue: the LocalQueue whose quota the pods of an object use."""

LABEL_DISCOVERED: Final = f"{GROUP}/discovered"
"""On an AcceleratorPool that the operator created for nodes that no declared pool selects."""

ANNOTATION_PLACED_FOR: Final = f"{GROUP}/placed-for"
"""On a child Deployment: digest of the part of the spec that determined its placement."""

ANNOTATION_PLACEMENT: Final = f"{GROUP}/placement"
"""On a child Deployment: pool, accelerator and parallelism of its placement, as JSON."""

ANNOTATION_MOVED: Final = f"{GROUP}/moved"
"""On a child Deployment: the pool from which its replicas migrated, when and why, as JSON."""

ANNOTATION_RESTARTED_AT: Final = f"{GROUP}/restarted-at"
"""On a pod: spec.rollout.restartedAt; a new time rolls the pods."""

ANNOTATION_INFERENCE_POOL: Final = f"{GROUP}/inference-pool"
"""On a child Service: name of the InferencePool that exists, or can exist, for it."""

ANNOTATION_MODEL_FACTS: Final = f"{GROUP}/model-facts"
"""On a child Service: what the Hub said of the model, for times when no Hub answers."""

ANNOTATION_ADAPTER_FACTS: Final = f"{GROUP}/adapter-facts"
"""On a child Service: the same of the LoRA adapters."""

ANNOTATION_MODEL_COMMIT: Final = f"{GROUP}/model-commit"
"""On a child Service: the commit of the repository that all replicas load, as JSON. Present with
spec.model.cache."""

ANNOTATION_PREFETCH_NODE: Final = f"{GROUP}/prefetch-node"
"""On a Job that downloads a checkpoint to the disk of a node: the node."""

ANNOTATION_JOB_INPUTS: Final = f"{GROUP}/job-inputs"
"""On a Job that downloads a checkpoint: the pool and the engine that it was rendered for, and a
digest of its image and token, as JSON."""

CORRECTIONS_CONFIG_MAP: Final = "tonnage-corrections"
"""In the namespace of the operator: memory corrections from earlier starts."""

ANNOTATION_RENDERED_FROM: Final = f"{GROUP}/rendered-from"
"""On a child Deployment: what its pod template was rendered from, as JSON: the vLLM release, and
digests of what users and platform teams set."""

ANNOTATION_POD_TEMPLATE: Final = f"{GROUP}/pod-template"
"""On a child Deployment: its pod template as rendered, packed (`api.packed`). The template of an
unchanged object stays, whatever a later operator would render."""

ANNOTATION_ADMITTED: Final = f"{GROUP}/admitted"
"""On a child Deployment whose pod template an admission webhook changed as the operator applied it:
the digest of the template that came of it, and the generation of the Deployment."""

CHILD_FIELD_MANAGER: Final = "tonnage"
STATUS_FIELD_MANAGER: Final = "tonnage-status"

APPLICATION: Final = "vllm"
"""Value of app.kubernetes.io/name on every child and pod, whatever its engine: NetworkPolicies and
monitors select pods by it."""

WEIGHTS_CONTAINER: Final = "weights"
"""Name of the container that keeps a checkpoint on the disk of its node."""

MAX_NAME_LENGTH: Final = 63
"""Length of a DNS label, the limit of Service names and label values."""

ANNOTATION_RENDERED: Final = f"{GROUP}/rendered"
"""On a child: digest of the rendered object; the operator applies a child whose digest differs."""

ANNOTATION_TEMPLATE: Final = f"{GROUP}/template"
"""On a child Deployment: digest of its pod template; a new digest rolls the pods."""


def owner_of(labels: Mapping[str, Any]) -> Any:
    """The name of the InferenceDeployment in the labels of a child or pod, serving or not; None
    without one. Labels of others may have any value."""
    return labels.get(LABEL_OWNER) or labels.get(LABEL_WORKER_OF)
