"""Replicas migrate for a reason, at the right time, and by choice one object at a time."""

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.in_memory.cluster import H100, L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import loading
from tonnage.api.names import ANNOTATION_MOVED
from tonnage.kube.kinds import ACCELERATOR_POOLS, DEPLOYMENTS, PODS
from tonnage.reconcile.observation.children import read_deployment
from tonnage.reconcile.scheduling.migration_lock import is_under_way

NAMES = ("a", "b", "c")
POOLS = {
    "mi300x": {**MI300X, "gpusPerNode": 3},
    "h100": {**H100, "gpusPerNode": 3},
    "l40s": {**L40S, "gpusPerNode": 3},
}
SELECTORS = {
    "mi300x": {"amd.com/gpu.device-id": "74a1"},
    "h100": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    "l40s": {"nvidia.com/gpu.product": "NVIDIA-L40S"},
}
AFTER, WINDOW = timedelta(minutes=10), timedelta(minutes=30)
RESTLESS = {
    "fallback": {"after": "10m", "back": "WhenPossible"},
    "rebalance": {"policy": "WhenCheaperBy", "percent": 20, "stabilizationWindow": "30m"},
}

pools = st.sampled_from(sorted(POOLS))
steps = st.one_of(
    st.tuples(st.just("there"), pools, st.booleans()),
    st.tuples(st.just("cordon"), pools, st.booleans()),
    st.tuples(st.just("occupy"), pools, st.integers(0, 3)),
    st.tuples(st.just("price"), pools, st.integers(1, 4)),
    st.tuples(st.just("load"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("look"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
    st.tuples(st.just("wait"), st.none(), st.sampled_from([1, 5, 9, 11, 31])),
)


class Watched(Cluster):
    """A cluster that notes each move as it is written."""

    def __init__(self, *groups: Mapping[str, Any]) -> None:
        super().__init__(*groups)
        self.noted: list[tuple[str, str, datetime, str]] = []
        """Object, reason, time, and why."""

    async def reconcile(self, name: str) -> float | None:
        before = self._moved()
        seconds = await super().reconcile(name)
        for key, text in self._moved().items():
            if text is not None and before.get(key) != text:
                migration = json.loads(text)
                moment = datetime.fromisoformat(migration["at"])
                self.noted.append((key[0], migration["reason"], moment, migration["why"]))
        return seconds

    def under_way(self, name: str) -> bool:
        bodies = [
            body
            for body in self.api.objects(DEPLOYMENTS)
            if body["metadata"]["ownerReferences"][0]["name"] == name
        ]
        return is_under_way([read_deployment(body) for body in bodies])

    def _moved(self) -> dict[tuple[str, str], str | None]:
        return {
            (
                body["metadata"]["ownerReferences"][0]["name"],
                body["metadata"]["name"],
            ): body["metadata"]["annotations"].get(ANNOTATION_MOVED)
            for body in self.api.objects(DEPLOYMENTS)
        }


def there(cluster: Cluster, pool: str, is_there: bool) -> None:
    cluster.leave(pool)
    if is_there:
        cluster.join(**POOLS[pool])


def occupy(cluster: Cluster, pool: str, gpus: int) -> None:
    cluster.free(f"{pool}-0")
    if gpus:
        resource = "amd.com/gpu" if pool == "mi300x" else "nvidia.com/gpu"
        cluster.occupy(f"{pool}-0", gpus, resource)


def load(cluster: Cluster, name: str, slowly: bool) -> None:
    cluster.behaviours.pop(name, None)
    if slowly:
        cluster.behaviours[name] = loading


def price(cluster: Cluster, pool: str, dollars: int) -> None:
    spec = {"nodeSelector": SELECTORS[pool], "costPerGPUHour": str(dollars)}
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": pool}, "spec": spec})
    cluster.watch()


ACTS: dict[str, Callable[[Cluster, Any, Any], None]] = {
    "there": there,
    "cordon": lambda cluster, pool, cordoned: cluster.cordon(pool, cordoned),
    "occupy": occupy,
    "price": price,
    "load": load,
    "restart": lambda cluster, *_: cluster.start_operator(),
}


async def act(cluster: Cluster, step: tuple[str, Any, Any]) -> None:
    kind, what, how = step
    if kind == "wait":
        await cluster.wait(how * 60)
    elif kind == "look":
        await cluster.reconcile(what)
    else:
        ACTS[kind](cluster, what, how)


async def started(placement: Any, names: tuple[str, ...] = NAMES) -> Watched:
    cluster = Watched(*POOLS.values())
    for dollars, pool in enumerate(sorted(POOLS), start=1):
        price(cluster, pool, dollars)
    for name in names:
        cluster.apply(name, spec_of(placement=placement))
        cluster.clock.advance(1)
    await cluster.settle()
    return cluster


def is_by_choice(reason: str, why: str) -> bool:
    return reason == "Rebalanced" or "(spec.placement.fallback.back)" in why


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(steps, min_size=4, max_size=30))
def test_migrations_keep_the_users_minimum_interval(history: list[tuple[str, Any, Any]]) -> None:
    async def run() -> None:
        cluster = await started(RESTLESS)
        for step in history:
            await act(cluster, step)
            await cluster.resync()
        for name in NAMES:
            times = [(at, reason, why) for who, reason, at, why in cluster.noted if who == name]
            for (before, _, _), (at, reason, why) in pairwise(times):
                least = WINDOW if is_by_choice(reason, why) else AFTER
                assert at - before >= least, times

    asyncio.run(run())


class OneAtATime(Watched):
    """A cluster that looks, whenever one begins to move by choice, whether another moves."""

    async def reconcile(self, name: str) -> float | None:
        others = [one for one in NAMES if one != name and self.under_way(one)]
        known = len(self.noted)
        seconds = await super().reconcile(name)
        for _, reason, _, why in self.noted[known:]:
            assert not (others and is_by_choice(reason, why)), f"{name} moves while {others} do"
        return seconds


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(steps, min_size=4, max_size=30))
def test_one_object_migrates_by_choice_at_a_time(history: list[tuple[str, Any, Any]]) -> None:
    async def run() -> None:
        cluster = OneAtATime(*POOLS.values())
        for dollars, pool in ((1, "h100"), (3, "mi300x"), (3, "l40s")):
            price(cluster, pool, dollars)
        for name in NAMES:
            cluster.apply(name, spec_of(placement=RESTLESS))
        await cluster.settle()
        price(cluster, "h100", 4)  # all of them would rather go
        price(cluster, "mi300x", 1)
        await cluster.resync()
        await cluster.wait(29 * 60)
        for step in history:
            await act(cluster, step)
            await cluster.settle()

    asyncio.run(run())


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(
    st.lists(
        st.tuples(
            pools,
            st.sampled_from(["there", "cordon", "occupy", "price"]),
            st.integers(1, 9),
            st.integers(1, 9),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_pools_that_flap_faster_than_the_delay_migrate_no_replica(
    history: list[tuple[str, str, int, int]],
) -> None:
    """Each change is undone within less than `fallback.after`, and every pod comes back."""

    async def run() -> None:
        cluster = await started(RESTLESS)
        before = {name: cluster.status(name)["placements"][0]["pool"] for name in NAMES}
        for pool, kind, gone, back in history:
            for how, minutes in ((True, gone), (False, back)):
                value = {"there": not how, "cordon": how, "occupy": 3 * how, "price": 4 * how}
                if kind == "occupy":
                    evict(cluster, pool)
                if kind == "price" and not how:
                    price(cluster, pool, 1 + sorted(POOLS).index(pool))
                else:
                    await act(cluster, (kind, pool, value[kind]))
                await cluster.resync()
                await cluster.wait(minutes * 60)
        assert cluster.noted == []
        after = {name: cluster.status(name)["placements"][0]["pool"] for name in NAMES}
        assert after == before

    asyncio.run(run())


def evict(cluster: Cluster, pool: str) -> None:
    """The pods on the pool's node end, as when somebody else's take their place."""
    for name in NAMES:
        for pod in cluster.pods(name):
            if pod["spec"].get("nodeName") == f"{pool}-0":
                cluster.api.remove(PODS, NAMESPACE, pod["metadata"]["name"])


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("price"), pools, st.integers(1, 4)),
            st.tuples(st.just("there"), st.sampled_from(["l40s", "mi300x"]), st.booleans()),
            st.tuples(st.just("cordon"), pools, st.booleans()),
            st.tuples(st.just("restart"), st.none(), st.none()),
            st.tuples(st.just("wait"), st.none(), st.sampled_from([1, 11, 600])),
        ),
        max_size=20,
    )
)
def test_an_object_without_a_migration_policy_stays_on_a_working_pool(
    history: list[tuple[str, Any, Any]],
) -> None:
    async def run() -> None:
        cluster = await started({"accelerators": None}, names=("a",))
        (placement,) = cluster.status("a")["placements"]
        assert placement["pool"] == "h100"
        for step in history:
            await act(cluster, step)
            await cluster.resync()
        assert cluster.noted == []
        assert cluster.deployments() == ["a-h100-sxm-80gb"]
        assert "rebalance" not in cluster.status("a")

    asyncio.run(run())
