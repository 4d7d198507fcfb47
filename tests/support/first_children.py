"""An operator that ends right after a first child, of which no status tells, and one begun anew."""

import asyncio

from tests.support.cluster import H100, MI300X, Cluster, spec_of
from tests.support.fake_api import Crash
from tonnage.kube.kinds import DEPLOYMENTS


def find_second_firsts() -> list[str]:
    """The first child's pool takes no more meanwhile; what there is beside it then."""
    return asyncio.run(_find())


async def _find() -> list[str]:
    cluster = Cluster(MI300X, H100)
    cluster.apply("llama", spec_of())
    cluster.api.fail_next("apply", Crash(), kind=DEPLOYMENTS, after=True)
    try:
        await cluster.reconcile("llama")
    except Crash:
        (first,) = cluster.deployments()
    cluster.cordon(first.removeprefix("llama-"))
    cluster.start_operator()
    await cluster.take_turn("llama")
    return [name for name in cluster.deployments() if name != first]
