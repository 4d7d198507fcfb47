"""Whatever the fleet, each pool gets one candidate with a reason, and the same one every time."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gpu_nodes import H200, L40S, MI355X, amd_node, gpu_pod_body, nvidia_node
from tests.support.placing import CATALOG, LLAMA_8B, LLAMA_70B, OWNER, spec_of
from tonnage.fit.model import Parallelism
from tonnage.fleet.model import FleetSnapshot, GpuPod, Pool
from tonnage.fleet.node import read_node
from tonnage.fleet.pod import read_gpu_pod
from tonnage.fleet.pools import build_pools
from tonnage.placement.decide import decide
from tonnage.placement.model import Request, Verdict

KINDS: dict[str, Any] = {
    "mi300x": lambda name, **how: amd_node(name, **how),
    "mi355x": lambda name, **how: amd_node(name, MI355X, **how),
    "h100": lambda name, **how: nvidia_node(name, **how),
    "h200": lambda name, **how: nvidia_node(name, H200, gpus=2, **how),
    "l40s": lambda name, **how: nvidia_node(name, L40S, gpus=4, **how),
    "unknown": lambda name, **how: nvidia_node(name, {}, **how),
}
FLEETS = st.lists(
    st.tuples(st.sampled_from(sorted(KINDS)), st.booleans(), st.integers(0, 8)), max_size=6
)
KEEPS = st.none() | st.tuples(
    st.sampled_from(["amd-mi300x", "nvidia-h100-sxm-80gb"]),
    st.sampled_from([Parallelism(1), Parallelism(4)]),
)
REQUESTS = st.builds(
    lambda policy, replicas, concurrency, checkpoint, keep: Request(
        OWNER,
        spec_of(
            workload={"concurrency": concurrency},
            placement={"policy": policy},
            **({} if replicas is None else {"replicas": replicas}),
        ),
        checkpoint,
        keep,
    ),
    st.sampled_from(["LowestCost", "FewestGPUs", "HighestThroughput"]),
    st.none() | st.integers(0, 5),
    st.sampled_from([1, 50, 5000]),
    st.sampled_from([LLAMA_8B, LLAMA_70B]),
    KEEPS,
)


def fleet_of(kinds: list[tuple[str, bool, int]]) -> tuple[Pool, ...]:
    nodes, pods = [], []
    for number, (kind, cordoned, used) in enumerate(kinds):
        node = KINDS[kind](f"{kind}-{number}", cordoned=cordoned)
        vendor = "amd" if kind.startswith("mi") else "nvidia"
        pod = read_gpu_pod(gpu_pod_body(f"p{number}", node=f"{kind}-{number}", gpus={vendor: used}))
        nodes.append(read_node(node))
        pods += [pod] if pod is not None else []
    found: tuple[GpuPod, ...] = tuple(pods)
    return build_pools(FleetSnapshot(tuple(nodes), found), CATALOG)


@given(FLEETS, REQUESTS)
@settings(max_examples=80, deadline=None)
def test_every_pool_has_one_candidate_with_a_reason_and_numbers(
    kinds: list[tuple[str, bool, int]], request: Request
) -> None:
    pools = fleet_of(kinds)
    decision = decide(request, pools, CATALOG)
    names = [candidate.pool.name for candidate in decision.candidates]
    assert sorted(names) == sorted(pool.name for pool in pools)
    for candidate in decision.candidates:
        assert candidate.reason.isalpha()
        assert candidate.message
    verdicts = [candidate.verdict for candidate in decision.candidates]
    order = [Verdict.CHOSEN, Verdict.FEASIBLE, Verdict.REJECTED]
    assert verdicts == sorted(verdicts, key=order.index)
    assert verdicts.count(Verdict.CHOSEN) == (decision.chosen is not None)
    assert decision.message


@given(FLEETS, REQUESTS)
@settings(max_examples=80, deadline=None)
def test_what_is_chosen_fits_and_has_room(
    kinds: list[tuple[str, bool, int]], request: Request
) -> None:
    chosen = decide(request, fleet_of(kinds), CATALOG).chosen
    if chosen is None:
        return
    assert chosen.fit.account.kv_cache_tokens >= chosen.fit.required_tokens
    assert chosen.fit.required_tokens >= request.spec.workload.max_model_len
    assert chosen.replicas == 0 or 0 < chosen.room <= chosen.pool.free
    assert chosen.parallelism.gpus <= max(node.gpus for node in chosen.pool.nodes)
    workload = request.spec.workload
    held = chosen.fit.account.kv_cache_tokens // (workload.input_tokens + workload.output_tokens)
    if request.spec.replicas is None and chosen.replicas < 64:
        assert held * chosen.replicas >= workload.concurrency


@given(FLEETS, REQUESTS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_pools_does_not_matter(
    kinds: list[tuple[str, bool, int]], request: Request, random: object
) -> None:
    pools = fleet_of(kinds)
    shuffled = list(pools)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types it as object
    assert decide(request, shuffled, CATALOG) == decide(request, pools, CATALOG)
