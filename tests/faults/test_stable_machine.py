"""Users, cluster and faults in any order: reservations hold at each step; at the end it converges.

A state machine takes the steps (hypothesis finds a shorter way to whatever breaks). No GPU is
promised or held twice at any moment, whatever the operator has heard by then. When the steps are
over and faults have ceased, operator and controllers come to rest: nothing is left over, and there
is nothing that the operator would still write, neither now nor after every deadline has passed, nor
when it is begun anew.
"""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.api_server.fake_api import Crash
from tests.support.faults.chaos import FOREIGN
from tests.support.fleets.histories import GROUPS, NAMES, SPECS, Checked
from tests.support.in_memory.approving import proposed
from tests.support.in_memory.cluster import spec_of
from tests.support.in_memory.controllers import crashing, loading, without_image
from tests.support.in_memory.end_state import find_faults, find_unrest
from tests.support.in_memory.pricing import price
from tonnage.kube.kinds import PODS
from tonnage.kube.protocol import ConflictError, NotFoundError, TransientError

_RESOURCES: Final = {"mi300x": "amd.com/gpu", "h100": "nvidia.com/gpu", "l40s": "nvidia.com/gpu"}
_SPECS: Final[dict[str, Any]] = {
    **SPECS,
    "restless": spec_of(
        placement={
            "fallback": {"after": "30s", "back": "WhenPossible"},
            "rebalance": {"policy": "WhenCheaperBy", "stabilizationWindow": "1m"},
        }
    ),
    "to be approved": spec_of(replicas=2, approval="Manual"),
    "paused": spec_of(replicas=3, rollout={"paused": True}),
    "soon overdue": spec_of(engine={"vllm": {"image": "none"}}, rollout={"progressDeadline": "1m"}),
}
_BEHAVIOURS: Final[dict[str, Any]] = {
    "loads for ever": loading,
    "ends": crashing(1),
    "lacks memory": crashing(1, message="torch.OutOfMemoryError: CUDA out of memory"),
    "lacks host memory": crashing(137, "OOMKilled"),
    "has no image": without_image,
}
_ERRORS: Final = {
    "409": ConflictError("409"),
    "429": TransientError("429", retry_after=1.0),
    "503": TransientError("503"),
    "death": Crash(),
}
_A_DAY: Final = 24 * 3600.0
"""Longer than any deadline."""

names, pools = st.sampled_from(NAMES[:3]), st.sampled_from(sorted(GROUPS))


class Stable(RuleBasedStateMachine):
    """A small cluster and three objects that ask for more than there is."""

    @initialize(seed=st.integers(0, 99), specs=st.lists(st.sampled_from(sorted(_SPECS))))
    def begin(self, seed: int, specs: list[str]) -> None:
        self.runner = asyncio.Runner()
        self.cluster = Checked(random.Random(seed))
        for name, spec in zip(NAMES[:3], specs, strict=False):
            self.cluster.apply(name, _SPECS[spec])

    # Users

    @rule(name=names, spec=st.sampled_from(sorted(_SPECS)))
    def apply_spec(self, name: str, spec: str) -> None:
        self.cluster.apply(name, _SPECS[spec])

    @rule(name=names, replicas=st.integers(0, 6))
    def scale(self, name: str, replicas: int) -> None:
        self._edit(name, replicas=replicas)

    @rule(name=names, paused=st.booleans())
    def pause(self, name: str, paused: bool) -> None:
        self._edit(name, rollout={"paused": paused})

    @rule(name=names)
    def approve(self, name: str) -> None:
        waiting = proposed(self.cluster, name) if self._is_there(name) else None
        if waiting is not None:
            self._edit(name, approvedPlan=waiting["hash"])

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.cluster.delete(name)

    # Nodes and pods

    @rule(pool=pools, there=st.booleans())
    def nodes(self, pool: str, there: bool) -> None:
        if there:
            self.cluster.join(**GROUPS[pool])
        else:
            self.cluster.leave(f"{pool}-0")

    @rule(pool=pools, cordoned=st.booleans())
    def drain(self, pool: str, cordoned: bool) -> None:
        self.cluster.cordon(pool, cordoned)

    @rule(pool=pools, ready=st.booleans())
    def fall_silent(self, pool: str, ready: bool) -> None:
        self.cluster.set_ready(f"{pool}-0", ready)

    @rule(pool=pools, dollars=st.integers(1, 9))
    def price(self, pool: str, dollars: int) -> None:
        price(self.cluster, pool, str(dollars))

    @rule(pool=pools, job=st.integers(0, 2), gpus=st.sampled_from([0, 1, 2, 4]))
    def others(self, pool: str, job: int, gpus: int) -> None:
        self.cluster.api.remove(PODS, FOREIGN, f"job-{job}")
        if gpus:
            self.cluster.put_foreign_pod(f"job-{job}", _RESOURCES[pool], gpus)

    @rule(name=names)
    def evict(self, name: str) -> None:
        self.cluster.evict(name)

    @rule(name=names, how=st.sampled_from(["well", *_BEHAVIOURS]))
    def behave(self, name: str, how: str) -> None:
        self.cluster.behaviours.pop(name, None)
        if how in _BEHAVIOURS:
            self.cluster.behaviours[name] = _BEHAVIOURS[how]

    # Faults

    @rule(writes=st.integers(1, 4), error=st.sampled_from(sorted(_ERRORS)), after=st.booleans())
    def fail_at_a_write(self, writes: int, error: str, after: bool) -> None:
        api = self.cluster.api
        api.fault_at_write(api.write_count + writes, _ERRORS[error], after=after)

    @rule(calls=st.integers(1, 12), error=st.sampled_from(sorted(_ERRORS)))
    def fail_at_a_call(self, calls: int, error: str) -> None:
        self.cluster.api.fault_at_call(self.cluster.api.call_count + calls, _ERRORS[error])

    @rule(lagging=st.booleans())
    def hear_late(self, lagging: bool) -> None:
        self.cluster.lagging = lagging
        self.cluster.watch()

    @rule()
    def begin_anew(self) -> None:
        self.cluster.start_operator()

    # The operator, the controllers and time

    @rule(name=names)
    def reconcile(self, name: str) -> None:
        self._run(self.cluster.reconcile_unless_it_dies(name))

    @rule()
    def controllers(self) -> None:
        self.cluster.step()

    @rule(seconds=st.sampled_from([1, 29, 700]))
    def wait(self, seconds: float) -> None:
        self.cluster.clock.advance(seconds)

    @precondition(lambda self: not self.cluster.lagging)
    @rule()
    def settle(self) -> None:
        self.cluster.api.clear_faults()
        self._run(self.cluster.settle())

    @invariant()
    def no_gpu_is_promised_or_held_twice(self) -> None:
        assert self.cluster.verdict.double_bookings == []

    def teardown(self) -> None:
        """The steps are over."""
        if not hasattr(self, "runner"):
            return
        try:
            self._run(self._come_to_rest())
        finally:
            self.runner.close()

    async def _come_to_rest(self) -> None:
        cluster = self.cluster
        cluster.lagging = False
        cluster.api.clear_faults()
        cluster.watch()
        await cluster.resync()
        while cluster.sight().has_ending:
            cluster.step()
            await cluster.settle()
        await cluster.wait(_A_DAY)
        await cluster.wait(_A_DAY)  # what began when the first day was over
        await cluster.resync()  # the candidates report what is free elsewhere
        cluster.check_rest()
        assert cluster.verdict.double_bookings == []
        assert find_faults(cluster.api) == []
        assert await find_unrest(cluster) == []

    def _edit(self, name: str, **fields: Any) -> None:
        if self._is_there(name):
            spec = self.cluster.inference_deployment(name)["spec"]
            self.cluster.apply(name, {**spec, **fields})

    def _is_there(self, name: str) -> bool:
        try:
            self.cluster.inference_deployment(name)
        except NotFoundError:
            return False
        return True

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self.runner.run(work)


TestStable = Stable.TestCase
TestStable.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
