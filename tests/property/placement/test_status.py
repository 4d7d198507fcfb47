"""A status stays small for any length of names and messages and any number of pools."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fleets.gpu_nodes import amd_node
from tests.support.fleets.placing import LLAMA_8B, chosen, decide_on
from tonnage.api.conditions import MAX_MESSAGE_BYTES, Condition, ConditionType
from tonnage.api.status import InferenceDeploymentStatus, ModelStatus
from tonnage.api.text import truncate
from tonnage.placement.model import Candidate, Decision, Option, Verdict
from tonnage.placement.reasons import FeasibleReason, RejectedReason
from tonnage.placement.report import MAX_STATUS_BYTES, placement_status, with_candidates

OPTION = chosen(decide_on([amd_node("a")], LLAMA_8B))
CHARACTERS = st.sampled_from(["a", '"', "\\", "é", "模", "😀", "\n", "<"])


def option_of(number: int, name_length: int, rules: int) -> Option:
    name = f"{number:06}".ljust(name_length, "x")
    return replace(
        OPTION,
        pool=replace(OPTION.pool, name=name),
        overridden=tuple(f"{rule:02}".ljust(64, "R") for rule in range(rules)),
        capacity=0,
        replicas=1000,
    )


def decision_of(pools: int, option: Option, message: str, name_length: int) -> Decision:
    reasons = [*FeasibleReason, *RejectedReason]
    others = tuple(
        Candidate(
            replace(option.pool, name=f"{number:06}".ljust(name_length, "y")),
            Verdict.REJECTED,
            reasons[number % len(reasons)],
            message,
            option if number % 2 else None,
        )
        for number in range(pools)
    )
    first = Candidate(option.pool, Verdict.CHOSEN, "LowestCost", message, option)
    return Decision((first, *others), option, "PoolChosen", message)


def conditions_of(message: str) -> list[Condition]:
    return [
        Condition(
            type=kind,
            status="False",
            observed_generation=2**31,
            last_transition_time="2026-01-01T00:00:00Z",
            reason="UnsupportedArchitecture",
            message=truncate(message, MAX_MESSAGE_BYTES),
        )
        for kind in ConditionType
    ]


@given(
    pools=st.integers(0, 300),
    name_length=st.integers(6, 253),
    rules=st.integers(0, 64),
    character=CHARACTERS,
    length=st.sampled_from([1, 100, 400, 5000]),
    placements=st.integers(0, 3),
)
@settings(max_examples=120, deadline=None)
def test_the_status_stays_below_its_size_limit_and_counts_every_pool(
    pools: int, name_length: int, rules: int, character: str, length: int, placements: int
) -> None:
    message, option = character * length, option_of(0, name_length, rules)
    decision = decision_of(pools, option, message, name_length)
    placed = placement_status(decision, option, image="i" * 512, replicas=9, ready_replicas=9)
    status = InferenceDeploymentStatus(
        observed_generation=2**31,
        conditions=conditions_of(message),
        selector="s" * 300,
        model=ModelStatus(
            architecture="A" * 200,
            revision="r" * 200,
            weights_gi_b=1.0,
            max_position_embeddings=10**8,
        ),
        placements=[placed] * placements,
    )
    whole = with_candidates(status, decision)
    written = json.dumps(whole.to_dict(), ensure_ascii=False, separators=(",", ":"))
    assert len(written.encode()) <= MAX_STATUS_BYTES
    assert len(whole.candidates) + sum(whole.omitted_candidates.values()) == pools + 1
    assert whole.conditions == status.conditions
    assert whole.placements == status.placements
    assert all(len(entry.message.encode()) <= 400 for entry in whole.candidates)
    assert all(len(entry.message.encode()) <= MAX_MESSAGE_BYTES for entry in whole.placements)
