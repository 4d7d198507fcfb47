"""Which nodes a pod may run on."""

from collections.abc import Mapping
from typing import Any, Final

from tonnage.api.pod import Toleration
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.image_support import architectures_for
from tonnage.fleet.label_index import ARCHITECTURE
from tonnage.fleet.model import Pool
from tonnage.render.api_form import api_form
from tonnage.render.defaults import defaults

_OS: Final = "kubernetes.io/os"


def affinity(pool: Pool, catalog: Catalog) -> dict[str, Any]:
    """Only nodes with the pool's labels, and with an operating system and a processor that the
    image is built for. Never by a node's name: the scheduler chooses among them."""
    labels = {_OS: ("linux",), **_architectures(pool, catalog), **pool.node_selector}
    excluded = {key: values for key, values in pool.node_exclusion.items() if values}
    absent = sorted(key for key, values in pool.node_exclusion.items() if not values)
    expressions = [
        *_expressions("In", labels),
        *_expressions("NotIn", excluded),
        *({"key": key, "operator": "DoesNotExist"} for key in absent),
    ]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def tolerations(pool: Pool, given: list[Toleration]) -> list[dict[str, Any]]:
    """Those every GPU node may need, the pool's and the user's, each once.

    Other taints of the pool's nodes are not tolerated by themselves: somebody has put them there to
    keep pods away.
    """
    conventional = defaults().gpu_node_tolerations.tolerations
    declared = pool.declared.tolerations if pool.declared else []
    found = dict.fromkeys([*conventional, *declared, *given])
    return [api_form(toleration) for toleration in found]


def _expressions(operator: str, labels: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    return [
        {"key": key, "operator": operator, "values": sorted(values)}
        for key, values in sorted(labels.items())
    ]


def _architectures(pool: Pool, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """The processors that the accelerator's pods run on, for a pool whose accelerator is known."""
    if pool.accelerator is None:
        return {}
    image = catalog.images[pool.accelerator.vendor]
    return {ARCHITECTURE: architectures_for(pool.accelerator, image)}
