"""Random histories of a cluster, and whether any GPU was promised twice in them.

A double booking is one of three things:

- overcommitted: the pods bound to a node ask for more GPUs than it has;
- overpromised: the operator wrote more replicas, or larger ones, into a Deployment than find a
  place. The place is judged by the nodes and pods that the operator had heard of at that moment
  and by all Deployments as they were stored. The other objects' outstanding replicas keep their
  place, the largest first; those that had none before (nodes were lost) are left out. GPUs that
  the object itself holds are its own to use again, and pods of an older split or placement count
  as gone, since their successors were promised a place too;
- unkept: at rest, outstanding replicas that want more GPUs than the free ones on nodes where they
  may run, though on none of these nodes a GPU was lost since they were promised: no node went or
  was shut, no foreign pod was bound.

Replicas at rest for which there are GPUs enough, but scattered over nodes where the scheduler left
no block as large as they need, are counted apart: their GPUs were promised to no object.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any, Final

from tests.support.api_server.fake_api import Crash
from tests.support.faults.chaos import FOREIGN, ChaosCluster
from tests.support.faults.promise_book import Verdict, find_overcommitted, find_overpromised
from tests.support.fleets.promises import Promise, read_promises
from tests.support.in_memory.cluster import H100, L40S, MI300X, spec_of
from tests.support.in_memory.controllers import crashing, loading
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS
from tonnage.kube.protocol import TransientError

NAMES: Final = ("alpha", "beta", "gamma", "delta", "omega")
GROUPS: Final = {
    "mi300x": {**MI300X, "count": 2, "gpusPerNode": 2},
    "h100": {**H100, "count": 2, "gpusPerNode": 4},
    "l40s": {**L40S, "count": 1},
}
"""Of these nodes there is never enough for what NAMES ask for."""
SPECS: Final[dict[str, Any]] = {
    "one": spec_of(),
    "three": spec_of(replicas=3),
    "five": spec_of(replicas=5),
    "none": spec_of(replicas=0),
    "many at once": spec_of(replicas=2, workload={"concurrency": 800}),
    "by workload": {
        key: value
        for key, value in spec_of(workload={"concurrency": 400}).items()
        if key != "replicas"
    },
    "70B": spec_of("llama-3.3-70b", workload={"maxModelLen": 32768}),
    "70B on NVIDIA": spec_of(
        "llama-3.3-70b", replicas=2, placement={"accelerators": ["h100-sxm-80gb", "l40s"]}
    ),
    "fast": spec_of(replicas=2, placement={"policy": "HighestThroughput"}),
    "not on AMD": spec_of(
        placement={"accelerators": ["h100-sxm-80gb", "l40s"], "fallback": {"after": "30s"}}
    ),
    "recreate": spec_of(replicas=2, rollout={"strategy": "Recreate"}),
    "other arguments": spec_of(replicas=3, engine={"vllm": {"maxNumSeqs": 77}}),
    "spread": spec_of(replicas=4, placement={"spread": {"policy": "WhenShort"}}),
    "spread by cost": spec_of(replicas=6, placement={"spread": {"policy": "ByCost"}}),
    "spread by workload": {
        key: value
        for key, value in spec_of(
            workload={"concurrency": 900}, placement={"spread": {"policy": "WhenShort"}}
        ).items()
        if key != "replicas"
    },
    "nonsense": {"model": 7},
}
_RESOURCES: Final = {"mi300x": "amd.com/gpu", "h100": "nvidia.com/gpu", "l40s": "nvidia.com/gpu"}


class Checked(ChaosCluster):
    """A chaos cluster where each promise is checked when it is made."""

    def __init__(self, chance: random.Random) -> None:
        self.verdict = Verdict()
        super().__init__(chance, *GROUPS.values())

    async def reconcile(self, name: str) -> float | None:
        self.book.note_promises(self._promises(), self.known_at)
        try:
            return await super().reconcile(name)
        finally:
            for promise in self.book.note_promises(self._promises(), self.known_at):
                self._check(promise)

    def step(self) -> None:
        super().step()
        self._tell(find_overcommitted(self.sight()))

    def check_rest(self) -> None:
        """To be called when all have come to rest: every promise is kept."""
        unkept, scattered = self.book.find_unkept(self.sight(), self._promises())
        self._tell(unkept)
        self.verdict.scattered += scattered

    def _check(self, promise: Promise) -> None:
        self.verdict.promises += 1
        self._tell(find_overpromised(promise, self._promises(), self.known))

    def _promises(self) -> list[Promise]:
        return read_promises(
            self.api.objects(DEPLOYMENTS),
            self.api.objects(INFERENCE_DEPLOYMENTS),
            self.known.nodes,
        )

    def _tell(self, bookings: Iterable[str]) -> None:
        self.verdict.double_bookings += [f"moment {self.moment}: {booking}" for booking in bookings]


async def run_history(seed: int, steps: int = 30) -> Verdict:
    """Let so many random things happen, let all come to rest, and count double bookings."""
    chance = random.Random(seed)
    cluster = Checked(chance)
    acts = list(_ACTS)
    for name in NAMES:
        cluster.apply(name, SPECS[chance.choice(sorted(SPECS))])
    for _ in range(steps):
        act = chance.choices(acts, [_ACTS[name] for name in acts])[0]
        if act is _settle:
            cluster.api.clear_faults()
            await _rest(cluster)
        elif act is _reconcile:
            await cluster.reconcile_unless_it_dies(chance.choice(NAMES))
        else:
            act(cluster, chance)
        cluster.verdict.steps += 1
    cluster.behaviours.clear()
    cluster.api.clear_faults()
    await _rest(cluster)
    return cluster.verdict


async def _rest(cluster: Checked) -> None:
    cluster.lagging = False
    cluster.watch()
    try:
        await cluster.resync()
        while cluster.sight().has_ending:
            cluster.step()
            await cluster.settle()
    except AssertionError:
        cluster.verdict.restless += 1
    else:
        cluster.check_rest()


Act = Callable[[Checked, random.Random], Any]


def _settle(cluster: Checked, chance: random.Random) -> None:
    """Let all come to rest."""


def _reconcile(cluster: Checked, chance: random.Random) -> None:
    """Let the operator look at one object."""


def _step(cluster: Checked, chance: random.Random) -> None:
    cluster.step()


def _apply(cluster: Checked, chance: random.Random) -> None:
    cluster.apply(chance.choice(NAMES), SPECS[chance.choice(sorted(SPECS))])


def _scale(cluster: Checked, chance: random.Random) -> None:
    for body in cluster.api.objects(INFERENCE_DEPLOYMENTS)[:1]:
        spec = body["spec"] | {"replicas": chance.randint(0, 6)}
        cluster.apply(body["metadata"]["name"], spec)


def _delete(cluster: Checked, chance: random.Random) -> None:
    cluster.delete(chance.choice(NAMES))


def _join(cluster: Checked, chance: random.Random) -> None:
    cluster.join(**GROUPS[chance.choice(sorted(GROUPS))])


def _leave(cluster: Checked, chance: random.Random) -> None:
    cluster.leave(f"{chance.choice(sorted(GROUPS))}-{chance.randint(0, 1)}")


def _cordon(cluster: Checked, chance: random.Random) -> None:
    cluster.cordon(chance.choice(sorted(GROUPS)), chance.random() < 0.5)


def _fall_silent(cluster: Checked, chance: random.Random) -> None:
    node = f"{chance.choice(sorted(GROUPS))}-{chance.randint(0, 1)}"
    cluster.set_ready(node, chance.random() < 0.5)


def _foreign_pod(cluster: Checked, chance: random.Random) -> None:
    resource = _RESOURCES[chance.choice(sorted(GROUPS))]
    cluster.put_foreign_pod(f"job-{chance.randint(0, 5)}", resource, chance.choice((1, 2, 4)))


def _foreign_pod_ends(cluster: Checked, chance: random.Random) -> None:
    cluster.api.remove(PODS, FOREIGN, f"job-{chance.randint(0, 5)}")


def _evict(cluster: Checked, chance: random.Random) -> None:
    cluster.evict(chance.choice(NAMES))


def _misbehave(cluster: Checked, chance: random.Random) -> None:
    name = chance.choice(NAMES)
    cluster.behaviours.pop(name, None)
    if chance.random() < 0.5:
        cluster.behaviours[name] = chance.choice((loading, crashing(1)))


def _lag(cluster: Checked, chance: random.Random) -> None:
    cluster.lagging = not cluster.lagging
    cluster.watch()


def _restart(cluster: Checked, chance: random.Random) -> None:
    cluster.start_operator()


def _die_soon(cluster: Checked, chance: random.Random) -> None:
    """Another replica takes over in the middle of a reconcile."""
    api = cluster.api
    if chance.random() < 0.5:
        api.fault_at_call(api.call_count + chance.randint(1, 12), Crash())
    else:
        api.fault_at_write(api.write_count + chance.randint(1, 4), Crash(), after=True)


def _lose_replies(cluster: Checked, chance: random.Random) -> None:
    cluster.api.fail_next("apply", TransientError("lost"), after=True, times=chance.randint(1, 2))


def _wait(cluster: Checked, chance: random.Random) -> None:
    cluster.clock.advance(chance.choice((1, 29, 700)))


_ACTS: Final[dict[Act, int]] = {
    _reconcile: 14,
    _step: 8,
    _settle: 2,
    _apply: 7,
    _scale: 3,
    _delete: 2,
    _join: 2,
    _leave: 2,
    _cordon: 2,
    _fall_silent: 1,
    _foreign_pod: 2,
    _foreign_pod_ends: 2,
    _evict: 2,
    _misbehave: 1,
    _lag: 2,
    _restart: 1,
    _die_soon: 1,
    _lose_replies: 1,
    _wait: 2,
}
"""What can happen, and how often."""
