"""After any sequence of specs a replica is ready, and no failed plan is repeated."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import (
    Behaviour,
    crashing,
    loading,
    ready,
    serves,
    without_image,
)
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.children import read_deployment
from tonnage.reconcile.observation.plan_terms import read_terms

AFTER_ANY_DEADLINE = 4000
BAD: dict[str, Behaviour] = {
    "no-such-image": without_image,
    "never-answers": loading,
    "crashes": crashing(1, message="ValueError: broken"),
    "out-of-memory": crashing(
        1, message="ValueError: No available memory for the cache blocks. Try increasing it"
    ),
}
"""How pods with an image of this name behave; `amd-...` only on AMD."""

IMAGES = ["good-1", "good-2", *BAD, *(f"amd-{name}" for name in BAD)]
POOLS = {"amd": ["mi300x"], "nvidia": ["h100-sxm-80gb"], "any": None}

specs = st.builds(
    lambda image, pool, replicas, strategy: spec_of(
        replicas=replicas,
        engine={"vllm": {"image": image}},
        placement={"accelerators": POOLS[pool]} if POOLS[pool] else {},
        rollout={"strategy": strategy},
    ),
    st.sampled_from(IMAGES),
    st.sampled_from(sorted(POOLS)),
    st.integers(2, 3),
    st.sampled_from(["Auto", "Surge", "Recreate"]),
)
steps = st.one_of(
    st.tuples(st.just("apply"), specs),
    st.tuples(st.just("rounds"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, AFTER_ANY_DEADLINE])),
    st.tuples(st.just("restart"), st.none()),
)


def behave(pod: Object) -> Object:
    image = pod["spec"]["containers"][0]["image"]
    if image.startswith("amd-") and "mi300x" not in pod["metadata"]["name"]:
        return ready(pod)
    return BAD.get(image.removeprefix("amd-"), ready)(pod)


class Watched:
    """A cluster in which each move of the operator and of the controllers is looked at."""

    def __init__(self, *groups: dict[str, Any]) -> None:
        self.cluster = Cluster(*groups)
        self.cluster.behaviours["llama"] = behave

    async def begin(self) -> None:
        """Two replicas serve."""
        self.cluster.apply("llama", spec_of(replicas=2, engine={"vllm": {"image": "good-1"}}))
        await self.cluster.settle()
        assert self._ready() == 2

    async def take(self, step: tuple[str, Any]) -> None:
        kind, what = step
        self.cluster.clock.advance(2)  # pods are distinguished by when they were created
        if kind == "apply":
            self.cluster.apply("llama", what)
        elif kind == "restart":
            self.cluster.start_operator()
        elif kind == "wait":
            self.cluster.clock.advance(what)
            await self._rounds(3)
        else:
            await self._rounds(what)

    async def rest(self) -> None:
        """All deadlines pass, and no controller has anything left to do."""
        for _ in range(6):
            self.cluster.clock.advance(AFTER_ANY_DEADLINE)
            await self._rounds(6)
        await self.cluster.resync()
        writes = self.cluster.api.write_count
        self.cluster.start_operator()
        await self.cluster.resync()
        await self.cluster.wait(AFTER_ANY_DEADLINE)
        assert self.cluster.api.write_count == writes, "the operator writes on and on"
        self._check_end()

    async def _rounds(self, count: int) -> None:
        for _ in range(count):
            await self._reconcile()
            self.cluster.step()
            assert self._ready() >= 1, "the last replica that served is gone"

    async def _reconcile(self) -> None:
        before, known = self._templates(), self._failed()
        await self.cluster.reconcile("llama")
        again = {
            self._plan(name)
            for name, template in self._templates().items()
            if before.get(name) != template
        }
        assert not again & known & self._failed(), "a plan that failed was tried again"
        assert self._ready() >= 1

    def _templates(self) -> dict[str, str]:
        children = map(read_deployment, self.cluster.api.objects(DEPLOYMENTS))
        return {one.child.name: one.template for one in children}

    def _plan(self, name: str) -> str:
        child = read_deployment(self.cluster.deployment(name))
        place = child.pool, child.placement, child.parallelism
        return read_terms(*place, child.pod_template).hash

    def _failed(self) -> set[str]:
        return {one["hash"] for one in self.cluster.status().get("failedPlans", [])}

    def _ready(self) -> int:
        return sum(map(serves, self.cluster.pods()))

    def _check_end(self) -> None:
        conditions = self.cluster.conditions()
        asked = self.cluster.inference_deployment()["spec"]["replicas"]
        if conditions["Ready"][0] == "True":
            assert self._ready() == len(self.cluster.pods()) == asked
            assert "Degraded" not in conditions
        else:
            assert conditions["Ready"][1] == "RolledBack", conditions
            assert conditions["Degraded"] == ("True", "RolledBack")
            assert self._ready() == asked
            assert self.cluster.status()["failedPlans"]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(steps, min_size=2, max_size=10))
def test_a_replica_stays_ready_and_no_failed_plan_is_repeated(
    history: list[tuple[str, Any]],
) -> None:
    async def run() -> None:
        watched = Watched({**MI300X, "gpusPerNode": 4}, {**H100, "gpusPerNode": 4})
        await watched.begin()
        for step in history:
            await watched.take(step)
        await watched.rest()

    asyncio.run(run())
