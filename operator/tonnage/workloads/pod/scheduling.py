"""Node affinity and tolerations of a pod."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tonnage.api.pod import Toleration
from tonnage.catalog.catalog import Catalog
from tonnage.engines.defaults import load_defaults
from tonnage.engines.errors import LabelSyntaxError
from tonnage.engines.quantity import render_stored
from tonnage.fleet.devices.image_support import DRIVER_BRANCH, architectures_for
from tonnage.fleet.devices.label_index import ARCHITECTURE
from tonnage.fleet.model import Pool
from tonnage.workloads.label_syntax import KEY_SYNTAX, NAME_SYNTAX, is_label_key, is_label_value

_OS: Final = "kubernetes.io/os"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def render_affinity(
    pool: Pool, catalog: Catalog, oldest_driver: int | None = None
) -> dict[str, Any]:
    """Require the pool's labels, and an operating system, a processor and a driver for which the
    image is built. Never a node's name: the scheduler chooses the node."""
    labels = {_OS: ("linux",), **_architectures(pool, catalog), **pool.node_selector}
    excluded = {key: values for key, values in pool.node_exclusion.items() if values}
    absent = sorted(key for key, values in pool.node_exclusion.items() if not values)
    expressions = [
        *_expressions("In", labels),
        *_expressions("NotIn", excluded),
        *({"key": key, "operator": "DoesNotExist"} for key in absent),
    ]
    terms = [{"matchExpressions": [*expressions, *driver]} for driver in _drivers(oldest_driver)]
    required = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {_REQUIRED: required}}


def oldest_driver_of(affinity: Any) -> int | None:
    """The oldest driver branch that a rendered affinity admits, None where it admits any."""
    try:
        terms = affinity["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]
        return next(
            int(expression["values"][0]) + 1
            for term in terms
            for expression in term["matchExpressions"]
            if (expression["key"], expression["operator"]) == (DRIVER_BRANCH, "Gt")
        )
    except (KeyError, IndexError, TypeError, ValueError, StopIteration):
        return None  # Users may edit a Deployment.


def tolerations(pool: Pool, user_tolerations: list[Toleration]) -> list[dict[str, Any]]:
    """The conventional tolerations of GPU nodes, the pool's and the user's, each once.

    Pods tolerate no other taints of the pool's nodes: a taint is there to keep pods away.
    """
    conventional = load_defaults().gpu_node_tolerations.tolerations
    declared = pool.declared.tolerations if pool.declared else []
    unique = dict.fromkeys([*conventional, *declared, *user_tolerations])
    return [render_stored(toleration) for toleration in unique]


def check_tolerations(tolerations: Sequence[Toleration]) -> None:
    """Refuse what Kubernetes does not take as the key or value of a taint. Raises
    LabelSyntaxError."""
    for index, toleration in enumerate(tolerations):
        field = f"spec.template.spec.tolerations[{index}]"
        if toleration.key and not is_label_key(toleration.key):
            raise LabelSyntaxError(f"{field}.key", toleration.key, KEY_SYNTAX)
        if toleration.value and not is_label_value(toleration.value):
            raise LabelSyntaxError(f"{field}.value", toleration.value, NAME_SYNTAX)


def _expressions(operator: str, labels: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    return [
        {"key": key, "operator": operator, "values": sorted(values)}
        for key, values in sorted(labels.items())
    ]


def _drivers(oldest: int | None) -> list[list[dict[str, Any]]]:
    """Alternatives: a driver that is new enough, or a node that does not state its driver."""
    if oldest is None:
        return [[]]
    newer = {"key": DRIVER_BRANCH, "operator": "Gt", "values": [str(oldest - 1)]}
    return [[newer], [{"key": DRIVER_BRANCH, "operator": "DoesNotExist"}]]


def _architectures(pool: Pool, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """The processor architectures of the accelerator's image; none for an unknown accelerator."""
    if pool.accelerator is None:
        return {}
    image = catalog.images[pool.accelerator.vendor]
    return {ARCHITECTURE: architectures_for(pool.accelerator, image)}
