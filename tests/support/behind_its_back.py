"""Between two calls of one reconcile the world moves on."""

from collections.abc import Callable
from typing import Final

from tests.support.cluster import NAMESPACE, Cluster
from tests.support.crash_plans import compare_ends, find_wrong
from tests.support.end_state import ServingCount, end_state
from tests.support.scenarios import Scenario
from tonnage.api.names import CHILD_FIELD_MANAGER
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.kube.protocol import NotFoundError

_MOST_CALLS: Final = 100


async def change_at_each_call(scenario: Scenario) -> dict[int, list[str]]:
    """The scenario's change comes right before one call of a look at everything; what is wrong
    with its end, by that call."""
    true = await scenario.prepare()
    start = await true.copy()
    await scenario.play(true)
    wrong: dict[int, list[str]] = {}
    for call in range(1, _MOST_CALLS):
        cluster = await start.copy()
        serving, turn = ServingCount(cluster.api), _Turn(cluster, call, scenario.change)
        cluster.look_at_all()
        await cluster.settle()
        if not turn.came:
            break
        await cluster.wait(scenario.seconds)
        await cluster.wait(scenario.seconds)
        told = compare_ends(end_state(cluster.api), end_state(true.api))
        wrong[call] = [*told, *find_wrong(scenario, cluster, serving)]
    return {call: told for call, told in wrong.items() if told}


async def put_others_at_each_call(scenario: Scenario, child: str) -> dict[int, str]:
    """While the scenario's change is carried out, somebody puts a Deployment of their own in the
    place of a child; by the call right after that, what became of it where that is wrong."""
    start = await scenario.prepare()
    wrong: dict[int, str] = {}
    for call in range(1, _MOST_CALLS):
        cluster = await start.copy()
        turn = _Turn(cluster, call, lambda cluster: _put_other(cluster, child))
        scenario.change(cluster)
        await cluster.settle()
        if not turn.came:
            break
        await cluster.wait(scenario.seconds)
        try:
            managers = cluster.api.field_managers(DEPLOYMENTS, NAMESPACE, child)
        except NotFoundError:
            wrong[call] = f"{child} is deleted, which is not the operator's"
            continue
        if CHILD_FIELD_MANAGER in managers:
            wrong[call] = f"{child} is taken over, which is not the operator's"
    return wrong


class _Turn:
    """Somebody's, right before the call of this number from now."""

    def __init__(self, cluster: Cluster, call: int, act: Callable[[Cluster], object]) -> None:
        self._cluster = cluster
        self._act = act
        self.came = False
        cluster.api.act_at_call(cluster.api.call_count + call, self._take)

    def _take(self) -> None:
        self.came = True
        self._act(self._cluster)


def _put_other(cluster: Cluster, child: str) -> None:
    cluster.api.remove(DEPLOYMENTS, NAMESPACE, child)
    template = {"metadata": {"labels": {}}, "spec": {"containers": []}}
    body = {
        "metadata": {"name": child, "namespace": NAMESPACE},
        "spec": {"replicas": 0, "template": template, "strategy": {"type": "Recreate"}},
    }
    cluster.api.put(DEPLOYMENTS, body)
