"""With approval: Manual only approved plans run, whatever happens; once all are approved, the
object converges."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.in_memory.cluster import H100, L40S, MI300X, Cluster, spec_of
from tests.support.in_memory.pricing import price
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.reconcile.observation.children import read_deployment

POOLS = {
    "mi300x": {**MI300X, "gpusPerNode": 3},
    "h100": {**H100, "gpusPerNode": 3},
    "l40s": {**L40S, "gpusPerNode": 3},
}
RESTLESS = {
    "fallback": {"after": "10m", "back": "WhenPossible"},
    "rebalance": {"policy": "WhenCheaperBy", "percent": 20, "stabilizationWindow": "30m"},
}
SPECS: dict[str, Any] = {
    "one": spec_of(placement=RESTLESS),
    "three": spec_of(replicas=3, placement=RESTLESS),
    "none": spec_of(replicas=0, placement=RESTLESS),
    "long": spec_of(workload={"maxModelLen": 131072, "concurrency": 3}, placement=RESTLESS),
    "image": spec_of(engine={"vllm": {"image": "registry.local/vllm:other"}}, placement=RESTLESS),
    "fast": spec_of(placement={**RESTLESS, "policy": "HighestThroughput"}),
    "restart": spec_of(rollout={"restartedAt": "2026-01-01T00:00:00Z"}, placement=RESTLESS),
}
WRONG = "0123456789abcdef"

pools = st.sampled_from(sorted(POOLS))
steps = st.one_of(
    st.tuples(st.just("apply"), st.sampled_from(sorted(SPECS)), st.none()),
    st.tuples(st.just("approve"), st.booleans(), st.none()),
    st.tuples(st.just("there"), pools, st.booleans()),
    st.tuples(st.just("cordon"), pools, st.booleans()),
    st.tuples(st.just("occupy"), pools, st.integers(0, 3)),
    st.tuples(st.just("price"), pools, st.integers(1, 4)),
    st.tuples(st.just("restart"), st.none(), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1, 11, 31]), st.none()),
)


class Approving(Cluster):
    """A cluster with one object that checks, at every write, that somebody has approved it."""

    def __init__(self) -> None:
        self.proposals: dict[str, Any] = {}
        """What was proposed, by hash."""
        super().__init__(*POOLS.values())
        for dollars, pool in enumerate(sorted(POOLS), start=1):
            price(self, pool, str(dollars))

    def apply_spec(self, spec: str, approved: str | None = None) -> None:
        """The user applies a spec, and keeps what was approved."""
        approval = {"approval": "Manual"} | ({"approvedPlan": approved} if approved else {})
        self.apply("llama", {**SPECS[spec], **approval})

    def approve(self, hash_: str) -> None:
        self.apply("llama", {**self.inference_deployment()["spec"], "approvedPlan": hash_})

    def proposed(self) -> Any:
        return self.status().get("proposedPlan")

    async def reconcile(self, name: str) -> float | None:
        before = self._running()
        approved = self.inference_deployment()["spec"].get("approvedPlan")
        seconds = await super().reconcile(name)
        for deployment, runs in self._running().items():
            if before.get(deployment) != runs:
                assert approved in self.proposals, f"{deployment} is {runs}: never proposed"
                assert runs == _essence(self.proposals[approved]), "another plan was approved"
        proposal = self.proposed()
        if proposal:
            self.proposals[proposal["hash"]] = proposal
            assert self.conditions()["Placed"][1] in ("AwaitingApproval", "PoolChosen")
        return seconds

    def _running(self) -> dict[str, Any]:
        """What each Deployment runs, but for the number of its replicas."""
        return {
            body["metadata"]["name"]: (
                child.pool,
                child.placement,
                child.parallelism.tensor,
                child.parallelism.pipeline,
                body["spec"]["template"]["spec"]["containers"][0]["image"],
            )
            for body in self.api.objects(DEPLOYMENTS)
            for child in [read_deployment(body)]
        }


def _essence(plan: Any) -> Any:
    split = plan["tensorParallelSize"], plan["pipelineParallelSize"]
    return (plan["pool"], plan["accelerator"], *split, plan["image"])


def occupy(cluster: Cluster, pool: str, gpus: int) -> None:
    cluster.free(f"{pool}-0")
    if gpus:
        resource = "amd.com/gpu" if pool == "mi300x" else "nvidia.com/gpu"
        cluster.occupy(f"{pool}-0", gpus, resource)


async def act(cluster: Approving, step: tuple[str, Any, Any]) -> None:
    match step:
        case ("apply", spec, _):
            cluster.apply_spec(spec, cluster.inference_deployment()["spec"].get("approvedPlan"))
        case ("approve", what_waits, _):
            waiting = cluster.proposed()
            cluster.approve(waiting["hash"] if waiting and what_waits else WRONG)
        case ("there", pool, is_there):
            cluster.leave(pool)
            if is_there:
                cluster.join(**POOLS[pool])
        case ("cordon", pool, cordoned):
            cluster.cordon(pool, cordoned)
        case ("occupy", pool, gpus):
            occupy(cluster, pool, gpus)
        case ("price", pool, dollars):
            price(cluster, pool, str(dollars))
        case ("restart", _, _):
            cluster.start_operator()
        case ("wait", minutes, _):
            await cluster.wait(minutes * 60)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(steps, min_size=4, max_size=25))
def test_only_approved_plans_run_and_approving_all_converges(
    history: list[tuple[str, Any, Any]],
) -> None:
    async def run() -> None:
        cluster = Approving()
        cluster.apply_spec("one")
        await cluster.settle()
        for step in history:
            await act(cluster, step)
            await cluster.resync()
        for pool in POOLS:
            await act(cluster, ("there", pool, True))
            await act(cluster, ("occupy", pool, 0))
        await cluster.resync()
        for _ in range(6):
            waiting = cluster.proposed()
            if waiting:
                cluster.approve(waiting["hash"])
            await cluster.resync()
            await cluster.wait(31 * 60)
        assert cluster.proposed() is None
        assert cluster.conditions()["Ready"][0] == "True", cluster.message("Ready")
        writes = cluster.api.write_count
        cluster.start_operator()
        await cluster.settle()
        assert cluster.api.write_count == writes, "at rest, a restarted operator writes"

    asyncio.run(run())
