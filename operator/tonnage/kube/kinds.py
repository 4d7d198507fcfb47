"""Every kind of object that Tonnage reads or writes; there is no discovery."""

from typing import Final

from tonnage.api.names import ACCELERATOR_POOL, GROUP, INFERENCE_DEPLOYMENT, VERSION
from tonnage.kube.protocol import Kind

INFERENCE_DEPLOYMENTS: Final = Kind(GROUP, VERSION, INFERENCE_DEPLOYMENT, "inferencedeployments")
ACCELERATOR_POOLS: Final = Kind(
    GROUP, VERSION, ACCELERATOR_POOL, "acceleratorpools", namespaced=False
)
DEPLOYMENTS: Final = Kind("apps", "v1", "Deployment", "deployments")
LEADER_WORKER_SETS: Final = Kind(
    "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"
)
JOBS: Final = Kind("batch", "v1", "Job", "jobs")
REPLICA_SETS: Final = Kind("apps", "v1", "ReplicaSet", "replicasets")
CONTROLLER_REVISIONS: Final = Kind("apps", "v1", "ControllerRevision", "controllerrevisions")
SERVICES: Final = Kind("", "v1", "Service", "services")
PODS: Final = Kind("", "v1", "Pod", "pods")
NODES: Final = Kind("", "v1", "Node", "nodes", namespaced=False)
CONFIG_MAPS: Final = Kind("", "v1", "ConfigMap", "configmaps")
SECRETS: Final = Kind("", "v1", "Secret", "secrets")
INFERENCE_POOLS: Final = Kind(
    "inference.networking.k8s.io", "v1", "InferencePool", "inferencepools"
)
LIMIT_RANGES: Final = Kind("", "v1", "LimitRange", "limitranges")
NAMESPACES: Final = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
PERSISTENT_VOLUME_CLAIMS: Final = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
PERSISTENT_VOLUMES: Final = Kind(
    "", "v1", "PersistentVolume", "persistentvolumes", namespaced=False
)
RESOURCE_SLICES: Final = Kind(
    "resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False
)
RESOURCE_CLAIM_TEMPLATES: Final = Kind(
    "resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates"
)
RESOURCE_CLAIMS: Final = Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
COMPUTE_DOMAINS: Final = Kind("resource.nvidia.com", "v1beta1", "ComputeDomain", "computedomains")
DEVICE_CLASSES: Final = Kind(
    "resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False
)
RESOURCE_QUOTAS: Final = Kind("", "v1", "ResourceQuota", "resourcequotas")
POD_DISRUPTION_BUDGETS: Final = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
PRIORITY_CLASSES: Final = Kind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False
)
LEASES: Final = Kind("coordination.k8s.io", "v1", "Lease", "leases")
EVENTS: Final = Kind("events.k8s.io", "v1", "Event", "events")
TOKEN_REVIEWS: Final = Kind(
    "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False
)
SUBJECT_ACCESS_REVIEWS: Final = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
