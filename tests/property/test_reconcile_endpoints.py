"""Whatever wishes and pools do, both endpoints of a model come to rest as was wished last."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.cluster import H100, L40S, MI300X, Cluster
from tests.support.end_state import end_state
from tests.support.told_apart import ALL, LONG, apart, objects, ready_by_context, together
from tonnage.api.names import ANNOTATION_RENDERED
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import Object

GROUPS = {"mi300x": MI300X, "h100": H100, "l40s": L40S}
LATER = apart({"above": 32768})
WISHES: dict[str, Object] = {
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
    st.tuples(st.just("wish"), st.sampled_from(sorted(WISHES))),
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
        case "wish":
            cluster.apply("llama", WISHES[which])
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
    """Nothing is left to be written, and what is told is what is there."""
    before = cluster.api.write_count
    await cluster.resync()
    assert cluster.api.write_count == before
    if "llama" not in objects(cluster):
        assert objects(cluster) == cluster.deployments() == []
        return
    accepted = cluster.conditions()["Accepted"][0] == "True"
    wished = "longContext" in cluster.inference_deployment()["spec"]["workload"]
    if accepted:
        assert objects(cluster) == (["llama", LONG] if wished else ["llama"])
        assert set(ready_by_context(cluster)) == ({"short", "long"} if wished else set())
    if accepted and wished and cluster.conditions()["Ready"][0] == "True":
        assert cluster.conditions(LONG)["Ready"][0] == "True"
    services = {body["metadata"]["name"] for body in cluster.api.objects(SERVICES)}
    assert services <= set(objects(cluster))


async def play(history: list[tuple[str, Any]]) -> None:
    cluster = Cluster(*GROUPS.values())
    cluster.apply("llama", WISHES["together"])
    for step in history:
        await act(cluster, step)
    await cluster.settle()
    await check_rest(cluster)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(steps, max_size=12))
def test_both_endpoints_come_to_rest_and_are_what_is_wished(history: list[tuple[str, Any]]) -> None:
    asyncio.run(play(history))


WAYS = st.lists(
    st.sampled_from(["apart", "later", "more", "given", "nonsense"]), min_size=1, max_size=4
)
ENDS = {"together": together(), "two": together(replicas=2), "apart": apart(), "later": LATER}


async def end_by(*wishes: Object) -> Any:
    """Where one pool ends after these wishes, one after the other; on several what runs may stay
    where an older wish has led it, and that is another rule."""
    cluster = Cluster(MI300X)
    for wish in wishes:
        cluster.apply("llama", wish)
        await cluster.settle()
    assert cluster.api.collect_garbage() == []
    state = end_state(cluster.api)
    for body in state.values():
        if isinstance(body, dict):
            body.get("status", {}).pop("lastReadyPlan", None)  # it tells of generations
            body["metadata"].get("annotations", {}).pop(ANNOTATION_RENDERED, None)  # and of uids
    return {name: found for name, found in state.items() if found}


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(WAYS, st.sampled_from(sorted(ENDS)))
def test_the_way_to_a_wish_leaves_no_trace(way: list[str], end: str) -> None:
    want = asyncio.run(end_by(ENDS[end]))
    assert asyncio.run(end_by(*(WISHES[wish] for wish in way), ENDS[end])) == want
