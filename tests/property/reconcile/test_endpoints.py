"""Whatever specs are applied and pools do, both endpoints converge to the last spec."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.in_memory.cluster import H100, L40S, MI300X, Cluster
from tests.support.in_memory.end_state import end_state
from tests.support.in_memory.long_context import (
    ALL,
    LONG,
    apart,
    objects,
    ready_by_context,
    together,
)
from tonnage.api.names import ANNOTATION_RENDERED
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import Object

GROUPS = {"mi300x": MI300X, "h100": H100, "l40s": L40S}
LATER = apart({"above": 32768})
SPECS: dict[str, Object] = {
    "together": together(),
    "apart": apart(),
    "later": LATER,
    "more": apart({"concurrency": 8}),
    "given": apart({"replicas": 2}, replicas=2),
    "stopped": apart(replicas=0),
    "manual": apart(approval="Manual"),
    "on AMD": apart(placement={"accelerators": ["mi300x"]}),
    "nonsense": apart({"above": ALL}),
}

steps = st.one_of(
    st.tuples(st.just("apply"), st.sampled_from(sorted(SPECS))),
    st.tuples(st.just("leave"), st.sampled_from(sorted(GROUPS))),
    st.tuples(st.just("join"), st.sampled_from(sorted(GROUPS))),
    st.tuples(st.just("delete"), st.sampled_from(["llama", LONG])),
    st.tuples(st.just("meddle"), st.just(LONG)),
    st.tuples(st.just("look"), st.sampled_from(["llama", LONG])),
    st.tuples(st.just("forget"), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1, 31, 700])),
)


async def act(cluster: Cluster, step: tuple[str, Any]) -> None:
    what, which = step
    match what:
        case "apply":
            cluster.apply("llama", SPECS[which])
        case "leave":
            cluster.leave(which)
        case "join":
            cluster.join(**GROUPS[which])
        case "delete":
            cluster.delete(which)
        case "meddle" if LONG in objects(cluster):
            body = cluster.inference_deployment(LONG)
            body["spec"]["workload"]["concurrency"] = 99
            cluster.api.put(INFERENCE_DEPLOYMENTS, body)
        case "look" if which in objects(cluster):
            await cluster.reconcile(which)
        case "forget":
            cluster.start_operator()
        case "wait":
            await cluster.wait(which)


async def check_rest(cluster: Cluster) -> None:
    """Nothing is left to write, and the status describes what exists."""
    before = cluster.api.write_count
    await cluster.resync()
    assert cluster.api.write_count == before
    if "llama" not in objects(cluster):
        assert objects(cluster) == cluster.deployments() == []
        return
    accepted = cluster.conditions()["Accepted"][0] == "True"
    apart_wanted = "longContext" in cluster.inference_deployment()["spec"]["workload"]
    if accepted:
        assert objects(cluster) == (["llama", LONG] if apart_wanted else ["llama"])
        assert set(ready_by_context(cluster)) == ({"short", "long"} if apart_wanted else set())
    if accepted and apart_wanted and cluster.conditions()["Ready"][0] == "True":
        assert cluster.conditions(LONG)["Ready"][0] == "True"
    services = {body["metadata"]["name"] for body in cluster.api.objects(SERVICES)}
    assert services <= set(objects(cluster))


async def play(history: list[tuple[str, Any]]) -> None:
    cluster = Cluster(*GROUPS.values())
    cluster.apply("llama", SPECS["together"])
    for step in history:
        await act(cluster, step)
    await cluster.settle()
    await check_rest(cluster)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(steps, max_size=12))
def test_both_endpoints_converge_to_the_last_spec(history: list[tuple[str, Any]]) -> None:
    asyncio.run(play(history))


WAYS = st.lists(
    st.sampled_from(["apart", "later", "more", "given", "nonsense"]), min_size=1, max_size=4
)
ENDS = {"together": together(), "two": together(replicas=2), "apart": apart(), "later": LATER}


async def end_by(*specs: Object) -> Any:
    """Where one pool ends after these specs, one after the other; on several what runs may stay
    where an older spec has led it, and that is another rule."""
    cluster = Cluster(MI300X)
    for spec in specs:
        cluster.apply("llama", spec)
        await cluster.settle()
    assert cluster.api.collect_garbage() == []
    state = end_state(cluster.api)
    for body in state.values():
        if isinstance(body, dict):
            body.get("status", {}).pop("lastReadyPlan", None)  # it tells of generations
            body["metadata"].get("annotations", {}).pop(ANNOTATION_RENDERED, None)  # and of uids
    return {name: kept for name, kept in state.items() if kept}


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(WAYS, st.sampled_from(sorted(ENDS)))
def test_the_end_state_depends_only_on_the_last_spec(way: list[str], end: str) -> None:
    want = asyncio.run(end_by(ENDS[end]))
    assert asyncio.run(end_by(*(SPECS[name] for name in way), ENDS[end])) == want
