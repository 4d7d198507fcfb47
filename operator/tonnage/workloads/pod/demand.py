"""What the pods of a placement demand of nodes, read from the template that they are made from."""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.engines.replica import Replica
from tonnage.fleet.nodes.amounts import pod_requests, without_gpus
from tonnage.placement.pod_demand import PodDemand
from tonnage.workloads.pod.template import render_pod_template

MAX_DEMANDS: Final = 4096
"""Cached demands, of less than 1 KiB each."""


class DemandCache:
    """Reads demands from rendered templates, and keeps them: a fleet has few different ones."""

    def __init__(self) -> None:
        self._demands: OrderedDict[Hashable, PodDemand] = OrderedDict()

    def demand(self, replica: Replica, template: Hashable) -> PodDemand:
        """The demand of the replica's pod; `template` is the `template_key` of its spec."""
        resource, size = replica.option.pool.resource, replica.model_gib
        key = (template, resource, replica.vendor, replica.gpus, size)
        demand = self._demands.get(key)
        if demand is None:
            demand = self._demands[key] = read_demand(render_pod_template(replica)["spec"])
            if len(self._demands) > MAX_DEMANDS:
                self._demands.popitem(last=False)
        return demand


def template_key(spec: InferenceDeploymentSpec) -> Hashable:
    """Everything of a spec that decides the demand of its pods, in addition to the devices and the
    size of the model."""
    claim = spec.model.source.persistent_volume_claim
    return spec.template.model_dump_json(), claim and claim.claim_name


def read_demand(pod_spec: Mapping[str, Any]) -> PodDemand:
    """Read the demand of a pod with this spec."""
    return PodDemand(without_gpus(pod_requests(pod_spec)))
