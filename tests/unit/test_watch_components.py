"""What the components do together, in the operator's process in virtual time."""

import pytest

from tests.support.cluster import MI300X, NAMESPACE, Cluster, spec_of
from tests.support.live_operator import LiveCluster, run_in_virtual_time
from tonnage.kube.kinds import PODS
from tonnage.kube.protocol import ForbiddenError
from tonnage.kube.rights import Right

NAMES = tuple(f"llama-{number}" for number in range(6))


async def served() -> Cluster:
    cluster = Cluster(MI300X)
    for name in NAMES:
        cluster.apply(name, spec_of())
    await cluster.settle()
    return cluster


async def lose_the_right_to_list_pods() -> dict[str, tuple[str, str]]:
    """Condition Ready of each object a few seconds after the list of the pods was denied."""
    start = await served()
    async with LiveCluster.led(start.api.copy(), start.behaviours) as live:
        informers = live.replicas[0]._operator._components.informers
        (pods,) = (each for each in informers.by_watch if each.selection.kind == PODS)
        denied = ForbiddenError("403", Right("list", "", "pods", NAMESPACE))
        live.api.fail_next("list", denied, kind=PODS)
        with pytest.raises(ForbiddenError):
            await pods.list()
        await live.wait(5)
        return {name: live.conditions(name)["Ready"] for name in NAMES}


def test_every_object_becomes_unknown_when_the_right_to_list_its_pods_goes() -> None:
    ready = run_in_virtual_time(lose_the_right_to_list_pods)
    assert ready == dict.fromkeys(NAMES, ("Unknown", "Forbidden"))
