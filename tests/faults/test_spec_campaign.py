"""The end state depends only on the last spec; earlier and invalid specs do not matter."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.support.api_server.admission import spec_schema
from tests.support.faults.campaign import Campaign
from tests.support.specs.spec_walks import WITHOUT_CONSTANTS, Spec, Walk, first_spec, walks
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.reconcile import plan
from tonnage.reconcile.actions import Delete
from tonnage.reconcile.observation import serving
from tonnage.reconcile.rollout import strategy as rollout

PARTS, WALKS, STEPS = 10, 25, 9
"""2,000 transitions: a walk's first spec comes to an empty cluster."""


@pytest.mark.parametrize("part", range(PARTS))
def test_the_end_state_depends_only_on_the_last_spec(part: int) -> None:
    campaign = Campaign()

    @seed(part)
    @settings(
        max_examples=WALKS,
        backend=WITHOUT_CONSTANTS,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(walks(STEPS, spec_schema()))
    def take(walk: Walk) -> None:
        asyncio.run(campaign.take(walk))

    take()
    account = campaign.account
    assert account["transitions"] >= WALKS * (STEPS - 1)
    rare = {"refused by the API server", "not accepted"}
    assert all(account[outcome] for outcome in rare), account
    assert account["placed"] > account["transitions"] / 3, account


FIRST = first_spec("llama-3.1-8b")
BAD: Spec = {**FIRST, "workload": {"maxModelLen": -1}}
ELSEWHERE: Spec = {**FIRST, "placement": {"accelerators": ["h100-sxm-80gb"]}}


def _stay_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place is kept though it was chosen for something else."""
    monkeypatch.setattr(serving, "_deployments_for_spec", lambda seen: seen.deployments)


def _stop_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad spec takes away what runs."""
    keep_serving = plan._keep_serving

    def stop(observation: Any, *rest: Any) -> Any:
        children = [deployment.child for deployment in observation.deployments]
        actions = tuple(Delete(DEPLOYMENTS, child) for child in children)
        return replace(keep_serving(observation, *rest), actions=actions)

    monkeypatch.setattr(plan, "_keep_serving", stop)


def _count_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods are made anew with every change of the spec."""
    with_strategy = rollout._with_strategy

    def stamp(context: Any, *rest: Any) -> Any:
        rendered = with_strategy(context, *rest)
        generation = str(context.observation.generation)
        labels = rendered.body["spec"]["template"]["metadata"]["labels"]
        rendered.body["metadata"]["annotations"]["tonnage.dev/template"] += generation
        labels["generation"] = generation
        return rendered

    monkeypatch.setattr(rollout, "_with_strategy", stamp)


async def test_a_spec_that_runs_nowhere_ends_with_no_place_whatever_ran_before() -> None:
    nowhere = {**FIRST, "placement": {"maxCostPerHour": "0.01"}}
    campaign = Campaign()
    await campaign.take([nowhere, FIRST, nowhere, FIRST])
    assert campaign.account["no place"] == 2, campaign.account
    assert campaign.account["placed"] == 2, campaign.account


async def test_a_restart_with_capacity_for_some_replicas_does_not_change_the_end_state() -> None:
    restart = {**FIRST, "replicas": 40, "rollout": {"restartedAt": "2026-01-01T00:00:00Z"}}
    campaign = Campaign()
    await campaign.take([FIRST, restart])
    assert campaign.account["short"] == 1, campaign.account


@pytest.mark.parametrize(
    ("mutate", "walk"),
    [
        (_stay_for_ever, [FIRST, ELSEWHERE]),
        (_stop_serving, [FIRST, BAD]),
        (_count_generations, [FIRST, {**FIRST, "rollout": {"strategy": "Recreate"}}]),
    ],
)
async def test_an_end_state_that_depends_on_the_history_is_detected(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None], walk: Walk
) -> None:
    await Campaign().take(walk)
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        await Campaign().take(walk)
