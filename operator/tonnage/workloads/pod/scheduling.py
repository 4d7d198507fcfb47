"""Node affinity and tolerations of a pod."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final

from tonnage.api.pod import Toleration
from tonnage.catalog.catalog import Catalog
from tonnage.engines.defaults import load_defaults
from tonnage.engines.errors import LabelSyntaxError
from tonnage.engines.quantity import render_stored
from tonnage.fleet.devices.image_support import DRIVER_BRANCH, architectures_for
from tonnage.fleet.devices.label_index import ARCHITECTURE
from tonnage.fleet.model import Pool
from tonnage.fleet.nodes.affinity import NodeRequirement, read_pod_affinity
from tonnage.workloads.label_syntax import KEY_SYNTAX, NAME_SYNTAX, is_label_key, is_label_value
from tonnage.workloads.pod.patches import PodPatch

_SILENT: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of nodes that do not answer."""

_OS: Final = "kubernetes.io/os"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final = "nodeSelectorTerms"


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
    return {"nodeAffinity": {_REQUIRED: {_TERMS: terms}}}


def requirements_of(patch: PodPatch) -> tuple[NodeRequirement, ...]:
    """What a patch requires of nodes."""
    return read_pod_affinity(f"{patch.source}.spec", patch.spec)


def follow_nodes(kept: Any, rendered: Any) -> Any:
    """The rendered affinity for an image that was chosen earlier: with the drivers that the `kept`
    affinity admits, which is returned where nothing else differs."""
    (drivers, kept_terms), (_, terms) = _split_drivers(kept), _split_drivers(rendered)
    if terms == kept_terms and {**kept, "nodeAffinity": None} == {**rendered, "nodeAffinity": None}:
        return kept
    combined = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *driver]}
        for term in terms
        for driver in drivers or [[]]
    ]
    node_affinity = {**rendered["nodeAffinity"], _REQUIRED: {_TERMS: combined}}
    return {**rendered, "nodeAffinity": node_affinity}


def _split_drivers(affinity: Any) -> tuple[list[list[Any]], list[dict[str, Any]]]:
    """The alternatives of drivers, and the terms without them, each once."""
    drivers: list[list[Any]] = []
    terms: list[dict[str, Any]] = []
    for term in _terms(affinity if isinstance(affinity, Mapping) else {}):
        expressions = term.get("matchExpressions") or []
        driver = [each for each in expressions if each.get("key") == DRIVER_BRANCH]
        others = [each for each in expressions if each.get("key") != DRIVER_BRANCH]
        rest = {**term, "matchExpressions": others}
        drivers += [driver] if driver and driver not in drivers else []
        terms += [] if rest in terms else [rest]
    return drivers, terms


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


def tolerations(
    pool: Pool, user_tolerations: Iterable[Toleration], nodes: int
) -> list[dict[str, Any]]:
    """The conventional tolerations of GPU nodes, the pool's and the user's, each once. The pods of
    a replica on several nodes leave a node that does not answer early, unless the user says
    otherwise.

    Pods tolerate no other taints of the pool's nodes: a taint is there to keep pods away.
    """
    user_tolerations = list(user_tolerations)
    conventional = load_defaults().gpu_node_tolerations.tolerations
    declared = pool.declared.tolerations if pool.declared else []
    unique = dict.fromkeys([*conventional, *declared, *user_tolerations])
    stated = {toleration.key for toleration in unique}
    seconds = load_defaults().several_nodes.silent_node_seconds
    silent = [
        Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=seconds)
        for key in _SILENT
        if nodes > 1 and key not in stated
    ]
    return [render_stored(toleration) for toleration in (*unique, *silent)]


def check_tolerations(tolerations: Iterable[Toleration], path: str) -> None:
    """Refuse what Kubernetes does not take as the key or value of a taint; `path` is that of the
    list. Raises LabelSyntaxError."""
    for index, toleration in enumerate(tolerations):
        if toleration.key and not is_label_key(toleration.key):
            raise LabelSyntaxError(f"{path}[{index}].key", toleration.key, KEY_SYNTAX)
        if toleration.value and not is_label_value(toleration.value):
            raise LabelSyntaxError(f"{path}[{index}].value", toleration.value, NAME_SYNTAX)


def _drivers(oldest: int | None) -> list[list[dict[str, Any]]]:
    """Alternatives: a driver that is new enough, or a node that does not state its driver."""
    if oldest is None:
        return [[]]
    newer = {"key": DRIVER_BRANCH, "operator": "Gt", "values": [str(oldest - 1)]}
    return [[newer], [{"key": DRIVER_BRANCH, "operator": "DoesNotExist"}]]


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
