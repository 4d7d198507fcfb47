"""What a spec comes to on a cluster in memory where no other came before it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from tests.support.in_memory.approving import proposed
from tests.support.in_memory.cluster import NAMESPACE, Cluster
from tests.support.specs.spec_values import config_of
from tests.support.specs.spec_walks import Spec
from tonnage.api.model import InlineSource
from tonnage.checkpoint.facts import checkpoint_from_inline
from tonnage.kube.kinds import CONFIG_MAPS, PRIORITY_CLASSES
from tonnage.kube.protocol import Object

FACTS: Final[Object] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "facts"},
    "data": {"config.json": json.dumps(config_of("llama-3.1-8b"))},
}
"""A ConfigMap that specs may name."""

_ON_THE_HUB: Final = replace(
    checkpoint_from_inline(InlineSource(config=config_of("llama-3.1-8b"))), revision="1" * 40
)
"""What specs may name on the Hub, at its commit."""


def new_cluster(groups: Iterable[Mapping[str, Any]]) -> Cluster:
    """A fleet, and what specs may name."""
    cluster = Cluster(*groups)
    cluster.hub.answer = _ON_THE_HUB
    cluster.api.put(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    cluster.api.put(CONFIG_MAPS, {**FACTS, "metadata": {"name": "facts", "namespace": NAMESPACE}})
    return cluster


async def give(cluster: Cluster, name: str, spec: Spec) -> None:
    """Apply the spec, and say yes to what is proposed."""
    cluster.clock.advance(60)
    cluster.apply(name, spec)
    await cluster.settle()
    waiting = proposed(cluster, name)
    if waiting is not None:
        cluster.apply(name, {**spec, "approvedPlan": waiting["hash"]})
        await cluster.settle()
    assert proposed(cluster, name) is None, "what is approved is proposed again"
