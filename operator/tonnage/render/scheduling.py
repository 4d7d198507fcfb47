"""Which nodes a pod may run on."""

from collections.abc import Mapping
from typing import Any, Final

from tonnage.api.pod import Toleration
from tonnage.fleet.model import Pool
from tonnage.render.api_form import api_form
from tonnage.render.defaults import defaults

_OS: Final = "kubernetes.io/os"
_ARCHITECTURE: Final = "kubernetes.io/arch"


def affinity(pool: Pool) -> dict[str, Any]:
    """Only nodes with the pool's labels, and with an operating system and a processor that the
    image is built for. Never by a node's name: the scheduler chooses among them."""
    labels = {
        _OS: ("linux",),
        _ARCHITECTURE: _architectures(pool),
        **pool.node_selector,
    }
    expressions = [
        *_expressions("In", labels),
        *_expressions("NotIn", pool.node_exclusion),
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


def _architectures(pool: Pool) -> tuple[str, ...]:
    """Where the accelerator sits beside another processor (GB200: arm64) the catalogue says so."""
    matches = pool.accelerator.matches if pool.accelerator else ()
    named = [match.values for match in matches if match.label == _ARCHITECTURE]
    return named[0] if named else tuple(defaults().architectures.default)
