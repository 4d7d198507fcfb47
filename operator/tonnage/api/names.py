"""Names that appear in the cluster: API group, label keys, field managers."""

from typing import Final

GROUP: Final = "tonnage.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

INFERENCE_DEPLOYMENT: Final = "InferenceDeployment"
ACCELERATOR_POOL: Final = "AcceleratorPool"

LABEL_OWNER: Final = f"{GROUP}/inferencedeployment"
"""On every child and pod: the name of the InferenceDeployment it belongs to."""

LABEL_PLACEMENT: Final = f"{GROUP}/placement"
"""On every child Deployment and pod of one placement: the placement's name."""

LABEL_CONTEXT: Final = f"{GROUP}/context"
"""Where requests are told apart by length: short or long, on the Services, Deployments and pods of
an endpoint, and on the InferenceDeployment of the long ones."""

LABEL_SHARD: Final = f"{GROUP}/shard"
"""On a Node, an AcceleratorPool, an InferenceDeployment, and all that belongs to one: which of
several operators it is for. Without it, it is for the operator that has no shard."""

LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "tonnage"

LABEL_KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Kueue's own: the LocalQueue whose quota an object's pods take."""

LABEL_DISCOVERED: Final = f"{GROUP}/discovered"
"""On an AcceleratorPool that the operator made itself for nodes no declared pool selects."""

ANNOTATION_PLACED_FOR: Final = f"{GROUP}/placed-for"
"""On a child Deployment: digest of the part of the spec that its place was chosen for."""

ANNOTATION_PLACEMENT: Final = f"{GROUP}/placement"
"""On a child Deployment: pool, accelerator and degrees it was rendered for, as JSON."""

ANNOTATION_MOVED: Final = f"{GROUP}/moved"
"""On a child Deployment: from which pool its replicas came, when and why, as JSON."""

ANNOTATION_RESTARTED_AT: Final = f"{GROUP}/restarted-at"
"""On a pod: spec.rollout.restartedAt; another time means the pods roll."""

ANNOTATION_INFERENCE_POOL: Final = f"{GROUP}/inference-pool"
"""On a child Service: name of the InferencePool that there is, or may be, beside it."""

CHILD_FIELD_MANAGER: Final = "tonnage"
STATUS_FIELD_MANAGER: Final = "tonnage-status"

VLLM_CONTAINER: Final = "vllm"
"""Name of the container that runs vLLM in every pod the operator makes."""

MAX_NAME_LENGTH: Final = 63
"""A DNS label: the length that Service names and label values may have."""

ANNOTATION_RENDERED: Final = f"{GROUP}/rendered"
"""On a child: digest of what was rendered; another digest means the child is to be applied."""

ANNOTATION_TEMPLATE: Final = f"{GROUP}/template"
"""On a child Deployment: digest of its pod template; another digest means the pods roll."""
