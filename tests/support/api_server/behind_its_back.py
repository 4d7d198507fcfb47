"""Between two calls of one reconcile the world moves on."""

from collections.abc import Callable
from typing import Final

from tests.support.faults.crash_plans import compare_ends, find_wrong
from tests.support.faults.scenarios import Scenario
from tests.support.in_memory.cluster import NAMESPACE, Cluster
from tests.support.in_memory.end_state import ServingCount, end_state
from tonnage.api.names import CHILD_FIELD_MANAGER
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.kube.protocol import NotFoundError

_MOST_CALLS: Final = 100


async def edit_at_each_call(scenario: Scenario, *, watch_is_quick: bool) -> dict[int, list[str]]:
    """While the scenario's change is carried out, the user edits the object once more; what is
    wrong with the end, by the call right before which that was. None of no call is a fault, too.

    A quick watch reports the edit before the call is answered.
    """
    start = await scenario.prepare()
    true = await start.copy()
    await _change_and_edit(true, scenario)
    wrong: dict[int, list[str]] = {}

    def edit(cluster: Cluster) -> None:
        _edit(cluster)
        if watch_is_quick:
            cluster.watch()

    for call in range(1, _MOST_CALLS):
        cluster = await start.copy()
        serving, turn = ServingCount(cluster.api), _Turn(cluster, call, edit)
        scenario.change(cluster)
        await cluster.settle()
        if not turn.came:
            break
        await _wait(cluster, scenario)
        differences = compare_ends(end_state(cluster.api), end_state(true.api))
        wrong[call] = [*differences, *find_wrong(scenario, cluster, serving)]
    return (
        {call: problems for call, problems in wrong.items() if problems}
        if wrong
        else {0: ["no call"]}
    )


async def _change_and_edit(cluster: Cluster, scenario: Scenario) -> None:
    scenario.change(cluster)
    await cluster.settle()
    _edit(cluster)
    await cluster.settle()
    await _wait(cluster, scenario)


async def _wait(cluster: Cluster, scenario: Scenario) -> None:
    await cluster.wait(scenario.seconds)
    await cluster.wait(scenario.seconds)


def _edit(cluster: Cluster) -> None:
    spec = cluster.inference_deployment()["spec"]
    engine = spec.get("engine", {})
    vllm = {**engine.get("vllm", {}), "maxNumSeqs": 55}
    cluster.apply("llama", {**spec, "engine": {**engine, "vllm": vllm}})


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
