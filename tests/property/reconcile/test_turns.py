"""In any order of events, no object takes GPUs that an object before it waits for."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.in_memory.cluster import H100, L40S, MI300X, NAMESPACE, WORLD, Cluster, spec_of
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, PRIORITY_CLASSES
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observe import observe
from tonnage.reconcile.plan import make_plan
from tonnage.reconcile.scheduling.admission import Admission

pytestmark = pytest.mark.usefixtures("claims_stand_in_status")

NAMES = ("a", "b", "c", "d")
POOLS = {
    "mi300x": {**MI300X, "gpusPerNode": 4},
    "h100": {**H100, "gpusPerNode": 4},
    "l40s": {**L40S, "count": 2, "gpusPerNode": 2},
}
SPECS: dict[str, Any] = {
    "one": spec_of(),
    "two": spec_of(replicas=2),
    "four": spec_of(replicas=4),
    "70B": spec_of("llama-3.3-70b", workload={"maxModelLen": 32768}),
    "not on AMD": spec_of(placement={"accelerators": ["h100-sxm-80gb", "l40s"]}),
    "fastest": spec_of(placement={"policy": "HighestThroughput"}),
    "first": spec_of(template={"spec": {"priorityClassName": "high"}}),
}
FREE = {"mi300x-0": 4, "h100-0": 4, "l40s-0": 2, "l40s-1": 2}

names = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.just("apply"), names, st.sampled_from(sorted(SPECS))),
    st.tuples(st.just("apply"), names, st.sampled_from(sorted(SPECS))),
    st.tuples(st.just("delete"), names, st.none()),
    st.tuples(st.just("occupy"), st.sampled_from(sorted(FREE)), st.integers(0, 4)),
    st.tuples(st.just("occupy"), st.sampled_from(sorted(FREE)), st.integers(0, 4)),
    st.tuples(st.just("reconcile"), names, st.none()),
    st.tuples(st.just("reconcile"), names, st.none()),
    st.tuples(st.just("controllers"), st.none(), st.none()),
    st.tuples(st.just("settle"), st.none(), st.permutations(NAMES)),
    st.tuples(st.just("restart"), st.none(), st.none()),
)


class Just(Cluster):
    """A cluster that asks, whenever an object takes GPUs, whether one before it is deprived."""

    async def reconcile(self, name: str) -> float | None:
        self.watch()
        waiting = [one for one in NAMES if one != name and self.waits(one)]
        could = {one: await self.would_take(one) for one in waiting}
        before = self.reserved(name)
        seconds = await super().reconcile(name)
        if self.reserved(name) > before:
            me = await self._observation(name)
            for one, gpus in could.items():
                other = await self._observation(one)
                if me is not None and other is not None and other.precedence < me.precedence:
                    assert gpus <= await self.would_take(one), f"{name} took what {one} waits for"
        return seconds

    def waits(self, name: str) -> bool:
        """Whether its status says of its very spec that it waits for GPUs."""
        bodies = {
            body["metadata"]["name"]: body for body in self.api.objects(INFERENCE_DEPLOYMENTS)
        }
        if name not in bodies:
            return False
        status, generation = self.status(name), bodies[name]["metadata"]["generation"]
        lacks = self.conditions(name).get("Placed") == ("False", "InsufficientGPUs")
        return lacks and status.get("observedGeneration") == generation

    async def would_take(self, name: str) -> int:
        """GPUs that it would hold after a look at what is free now."""
        observation = await self._observation(name)
        if observation is None:
            return 0
        admission = Admission(claims=self.fleet.claims_before(observation.precedence))
        now = self.clock.now()
        plan = make_plan(observation, self.fleet.view(), WORLD, now, admission)
        return sum(
            reservation.replicas * reservation.footprint.gpus for reservation in plan.reservations
        )

    async def _observation(self, name: str) -> Observation | None:
        return await observe(self.sources, Key(NAMESPACE, name))

    def reserved(self, name: str) -> int:
        owner = (NAMESPACE, name)
        return sum(
            reservation.replicas * reservation.footprint.gpus
            for reservation in self.fleet.view().snapshot().reservations
            if reservation.owner == owner
        )


async def act(cluster: Cluster, step: tuple[str, Any, Any]) -> None:
    kind, what, how = step
    cluster.clock.advance(1)
    if kind == "apply":
        cluster.apply(what, SPECS[how])
    elif kind == "delete":
        cluster.delete(what)
    elif kind == "occupy":
        occupy(cluster, what, how)
    elif kind == "reconcile":
        await cluster.reconcile(what)
    elif kind == "settle":
        await cluster.settle(how)
    else:
        (cluster.step if kind == "controllers" else cluster.start_operator)()


def occupy(cluster: Cluster, node: str, gpus: int) -> None:
    """Somebody else holds so many of the node's GPUs, as far as they are free."""
    cluster.free(node)
    held = sum(
        len(pod["spec"]["containers"])
        * int(next(iter(pod["spec"]["containers"][0]["resources"]["limits"].values()), 0))
        for name in NAMES
        for pod in cluster.pods(name)
        if pod["spec"].get("nodeName") == node
    )
    spare = min(gpus, FREE[node] - held)
    if spare > 0:
        resource = "amd.com/gpu" if node.startswith("mi300x") else "nvidia.com/gpu"
        cluster.occupy(node, spare, resource)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(steps, min_size=6, max_size=25))
def test_no_object_takes_gpus_that_an_object_before_it_waits_for(
    history: list[tuple[str, Any, Any]],
) -> None:
    async def run() -> None:
        cluster = Just(*POOLS.values())
        for name, value in (("high", 100), ("system-node-critical", 2_000_001_000)):
            cluster.api.put(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        for node, gpus in FREE.items():
            occupy(cluster, node, gpus)
        for name in NAMES:
            await act(cluster, ("apply", name, "one"))
        await cluster.settle()
        for step in history:
            await act(cluster, step)
        await cluster.settle()
        for name in NAMES:
            if cluster.waits(name):
                assert await cluster.would_take(name) == cluster.reserved(name), (
                    f"{name} waits for what is free"
                )

    asyncio.run(run())
