"""Node affinity and tolerations of a pod."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final

from tonnage.api.pod import Toleration
from tonnage.catalog.catalog import Catalog
from tonnage.engines.defaults import load_defaults
from tonnage.engines.quantity import render_stored
from tonnage.fleet.devices.image_support import architectures_for
from tonnage.fleet.devices.label_index import ARCHITECTURE
from tonnage.fleet.model import Pool

_OS: Final = "kubernetes.io/os"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final = "nodeSelectorTerms"


def render_affinity(pool: Pool, catalog: Catalog) -> dict[str, Any]:
    """Require the pool's labels, and an operating system and a processor for which the image is
    built. Never a node's name: the scheduler chooses the node."""
    labels = {_OS: ("linux",), **_architectures(pool, catalog), **pool.node_selector}
    excluded = {key: values for key, values in pool.node_exclusion.items() if values}
    absent = sorted(key for key, values in pool.node_exclusion.items() if not values)
    expressions = [
        *_expressions("In", labels),
        *_expressions("NotIn", excluded),
        *({"key": key, "operator": "DoesNotExist"} for key in absent),
    ]
    return {"nodeAffinity": {_REQUIRED: {_TERMS: [{"matchExpressions": expressions}]}}}


def require_all(
    affinity: Mapping[str, Any], pool: Mapping[str, Any], patches: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The merged affinity, requiring of a node what the pool and each of the patches require.

    The terms of one node affinity are alternatives, so those of several are combined.
    """
    alternatives = [_terms(one) for one in (pool, *patches)]
    terms = [
        {
            key: [expression for term in chosen for expression in term.get(key) or []]
            for key in ("matchExpressions", "matchFields")
            if any(term.get(key) for term in chosen)
        }
        for chosen in product(*(each for each in alternatives if each))
    ]
    node_affinity = {**(affinity.get("nodeAffinity") or {}), _REQUIRED: {_TERMS: terms}}
    return {**affinity, "nodeAffinity": node_affinity}


def _terms(affinity: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}
    return [term for term in required.get(_TERMS) or [] if isinstance(term, Mapping)]


def tolerations(pool: Pool, user_tolerations: Iterable[Toleration]) -> list[dict[str, Any]]:
    """The conventional tolerations of GPU nodes, the pool's and the user's, each once.

    Pods tolerate no other taints of the pool's nodes: a taint is there to keep pods away.
    """
    conventional = load_defaults().gpu_node_tolerations.tolerations
    declared = pool.declared.tolerations if pool.declared else []
    unique = dict.fromkeys([*conventional, *declared, *user_tolerations])
    return [render_stored(toleration) for toleration in unique]


def _expressions(operator: str, labels: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    return [
        {"key": key, "operator": operator, "values": sorted(values)}
        for key, values in sorted(labels.items())
    ]


def _architectures(pool: Pool, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """The processor architectures of the accelerator's image; none for an unknown accelerator."""
    if pool.accelerator is None:
        return {}
    image = catalog.images[pool.accelerator.vendor]
    return {ARCHITECTURE: architectures_for(pool.accelerator, image)}
