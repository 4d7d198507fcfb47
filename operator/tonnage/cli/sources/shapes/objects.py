"""The fields that Tonnage reads of each kind of object, and their types.

They are those of the Kubernetes API (k8s.io/api of 1.35) and of the CRDs that `kube.kinds` lists.
The specs of Tonnage's own kinds are not here: pydantic models parse them (`api.parse`).
"""

from collections.abc import Mapping
from typing import Final

from tonnage.api.names import ACCELERATOR_POOL, INFERENCE_DEPLOYMENT
from tonnage.cli.sources.shapes.field_types import (
    NAME,
    QUANTITY,
    TEXT,
    TIME,
    TRUTH,
    WHOLE,
    MapOf,
    Required,
    Shape,
)
from tonnage.kube import kinds

_LABELS: Final = MapOf(TEXT)
_QUANTITIES: Final = MapOf(QUANTITY)

_METADATA: Final[Shape] = {
    "name": Required(NAME),
    "namespace": TEXT,
    "uid": TEXT,
    "resourceVersion": TEXT,
    "generation": WHOLE,
    "creationTimestamp": TIME,
    "deletionTimestamp": TIME,
    "labels": _LABELS,
    "annotations": MapOf(TEXT),
    "ownerReferences": [{"kind": TEXT, "name": TEXT, "uid": TEXT, "controller": TRUTH}],
}

_CONDITION: Final[Mapping[str, Shape]] = {
    "type": Required(TEXT),
    "status": Required(TEXT),
    "reason": TEXT,
    "message": TEXT,
    "lastTransitionTime": TIME,
    "lastUpdateTime": TIME,
}

_SELECTOR: Final[Shape] = {
    "matchLabels": _LABELS,
    "matchExpressions": [{"key": Required(TEXT), "operator": Required(TEXT), "values": [TEXT]}],
}

_RESOURCES: Final[Shape] = {
    "limits": _QUANTITIES,
    "requests": _QUANTITIES,
    "claims": [{"name": TEXT, "request": TEXT}],
}

_CONTAINER: Final[Shape] = {
    "name": TEXT,
    "image": TEXT,
    "command": [TEXT],
    "args": [TEXT],
    "env": [{"name": Required(TEXT), "value": TEXT}],
    "resources": _RESOURCES,
    "restartPolicy": TEXT,
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT}],
}

_VOLUME: Final[Shape] = {
    "name": TEXT,
    "hostPath": {"path": TEXT},
    "persistentVolumeClaim": {"claimName": TEXT},
    "image": {"reference": TEXT},
}

_POD_SPEC: Final[Shape] = {
    "nodeName": TEXT,
    "nodeSelector": _LABELS,
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "volumes": [_VOLUME],
    "resources": _RESOURCES,
    "overhead": _QUANTITIES,
    "resourceClaims": [
        {"name": TEXT, "resourceClaimName": TEXT, "resourceClaimTemplateName": TEXT}
    ],
    "affinity": {"nodeAffinity": {}, "podAffinity": {}, "podAntiAffinity": {}},
}

_POD_TEMPLATE: Final[Shape] = {
    "metadata": {"name": TEXT, "labels": _LABELS, "annotations": MapOf(TEXT)},
    "spec": _POD_SPEC,
}

_CONTAINER_STATE: Final[Shape] = {
    "waiting": {"reason": TEXT, "message": TEXT},
    "running": {"startedAt": TIME},
    "terminated": {"exitCode": WHOLE, "reason": TEXT, "message": TEXT, "finishedAt": TIME},
}

_CONTAINER_STATUS: Final[Shape] = {
    "name": TEXT,
    "ready": TRUTH,
    "started": TRUTH,
    "restartCount": WHOLE,
    "state": _CONTAINER_STATE,
    "lastState": _CONTAINER_STATE,
}

_POD_STATUS: Final[Shape] = {
    "phase": TEXT,
    "podIP": TEXT,
    "reason": TEXT,
    "message": TEXT,
    "conditions": [_CONDITION],
    "containerStatuses": [_CONTAINER_STATUS],
    "initContainerStatuses": [_CONTAINER_STATUS],
    "resourceClaimStatuses": [{"name": TEXT, "resourceClaimName": TEXT}],
}

_WORKLOAD_STATUS: Final[Shape] = {
    "observedGeneration": WHOLE,
    "replicas": WHOLE,
    "readyReplicas": WHOLE,
    "updatedReplicas": WHOLE,
    "availableReplicas": WHOLE,
    "conditions": [_CONDITION],
}

_DEVICE: Final[Shape] = {
    "name": TEXT,
    "nodeName": TEXT,
    "attributes": MapOf({"string": TEXT, "int": WHOLE, "bool": TRUTH, "version": TEXT}),
    "capacity": MapOf({"value": QUANTITY}),
    "taints": [{"key": TEXT, "value": TEXT, "effect": TEXT}],
    "consumesCounters": [{"counterSet": TEXT}],
}

_FIELDS: Final[Mapping[str, Mapping[str, Shape]]] = {
    INFERENCE_DEPLOYMENT: {
        "status": {
            "observedGeneration": WHOLE,
            "conditions": [{**_CONDITION, "lastTransitionTime": Required(TIME)}],
            "placements": [{"name": TEXT, "pool": TEXT, "replicas": WHOLE, "reason": TEXT}],
            "endpoints": [{}],
        }
    },
    ACCELERATOR_POOL: {},
    kinds.NODES.kind: {
        "spec": {
            "unschedulable": TRUTH,
            "taints": [{"key": Required(TEXT), "value": TEXT, "effect": TEXT}],
        },
        "status": {
            "capacity": _QUANTITIES,
            "allocatable": _QUANTITIES,
            "conditions": [_CONDITION],
            "nodeInfo": {"operatingSystem": TEXT},
        },
    },
    kinds.PODS.kind: {"spec": Required(_POD_SPEC), "status": _POD_STATUS},
    kinds.DEPLOYMENTS.kind: {
        "spec": Required(
            {
                "replicas": WHOLE,
                "paused": TRUTH,
                "progressDeadlineSeconds": WHOLE,
                "strategy": {"type": TEXT, "rollingUpdate": {}},
                "template": _POD_TEMPLATE,
            }
        ),
        "status": _WORKLOAD_STATUS,
    },
    kinds.LEADER_WORKER_SETS.kind: {
        "spec": Required(
            {
                "replicas": WHOLE,
                "rolloutStrategy": {"rollingUpdateConfiguration": {"partition": WHOLE}},
                "leaderWorkerTemplate": {
                    "size": WHOLE,
                    "leaderTemplate": _POD_TEMPLATE,
                    "workerTemplate": _POD_TEMPLATE,
                },
            }
        ),
        "status": _WORKLOAD_STATUS,
    },
    kinds.REPLICA_SETS.kind: {"spec": {"template": _POD_TEMPLATE}},
    kinds.CONTROLLER_REVISIONS.kind: {"revision": WHOLE},
    kinds.JOBS.kind: {
        "spec": {"template": _POD_TEMPLATE},
        "status": {"active": WHOLE, "conditions": [_CONDITION]},
    },
    kinds.SERVICES.kind: {"spec": {"selector": _LABELS, "ports": [{"name": TEXT, "port": WHOLE}]}},
    kinds.POD_DISRUPTION_BUDGETS.kind: {"spec": {"selector": _SELECTOR}},
    kinds.PRIORITY_CLASSES.kind: {"value": Required(WHOLE), "globalDefault": TRUTH},
    kinds.CONFIG_MAPS.kind: {"data": MapOf(TEXT)},
    kinds.NAMESPACES.kind: {},
    kinds.LIMIT_RANGES.kind: {
        "spec": {
            "limits": [
                {
                    "type": TEXT,
                    "min": _QUANTITIES,
                    "max": _QUANTITIES,
                    "default": _QUANTITIES,
                    "defaultRequest": _QUANTITIES,
                    "maxLimitRequestRatio": _QUANTITIES,
                }
            ]
        }
    },
    kinds.RESOURCE_QUOTAS.kind: {
        "spec": {
            "hard": _QUANTITIES,
            "scopes": [TEXT],
            "scopeSelector": {
                "matchExpressions": [{"scopeName": TEXT, "operator": TEXT, "values": [TEXT]}]
            },
        },
        "status": {"hard": _QUANTITIES, "used": _QUANTITIES},
    },
    kinds.PERSISTENT_VOLUME_CLAIMS.kind: {
        "spec": {"volumeName": TEXT, "resources": {"requests": _QUANTITIES}},
        "status": {"capacity": _QUANTITIES},
    },
    kinds.PERSISTENT_VOLUMES.kind: {
        "spec": {
            "claimRef": {"namespace": TEXT, "name": TEXT},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{}]}},
        }
    },
    kinds.RESOURCE_SLICES.kind: {
        "spec": {
            "driver": TEXT,
            "nodeName": TEXT,
            "perDeviceNodeSelection": TRUTH,
            "pool": {"name": TEXT, "generation": WHOLE, "resourceSliceCount": WHOLE},
            "devices": [_DEVICE],
        }
    },
    kinds.RESOURCE_CLAIMS.kind: {
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {"driver": TEXT, "pool": TEXT, "device": TEXT, "adminAccess": TRUTH}
                    ]
                }
            },
            "reservedFor": [{"resource": TEXT, "name": TEXT, "uid": TEXT}],
        }
    },
    kinds.RESOURCE_CLAIM_TEMPLATES.kind: {"spec": {"spec": {"devices": {"requests": [{}]}}}},
    kinds.DEVICE_CLASSES.kind: {"spec": {"extendedResourceName": TEXT}},
    kinds.COMPUTE_DOMAINS.kind: {"spec": {}},
    kinds.INFERENCE_POOLS.kind: {"spec": {}},
}

UNREAD: Final[Shape] = {"apiVersion": TEXT, "kind": TEXT}
"""An object of another kind."""

SHAPES: Final[Mapping[str, Shape]] = {
    kind: {"apiVersion": TEXT, "kind": TEXT, "metadata": Required(_METADATA), **fields}
    for kind, fields in _FIELDS.items()
}
"""The shape of an object by its kind."""
