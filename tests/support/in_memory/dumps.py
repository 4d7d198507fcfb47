"""What `kubectl get ... -o yaml` would print of a cluster in memory, as files."""

import json
from collections.abc import Iterable
from pathlib import Path

from tests.support.api_server.fake_api import FakeApi
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
)
from tonnage.kube.protocol import Kind

WHOLE = (
    *(NODES, PODS, ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS),
    *(DEPLOYMENTS, SERVICES, POD_DISRUPTION_BUDGETS, PRIORITY_CLASSES),
)
"""All that the operator looks at."""


def dump(api: FakeApi, path: Path, kinds: Iterable[Kind] = WHOLE) -> str:
    """Write all objects of the kinds into one file, which is JSON and so YAML; returns its name."""
    items = [body for kind in kinds for body in api.objects(kind)]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)
