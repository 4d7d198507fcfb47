"""The operator's view of the cluster is late, incomplete, doubled or out of order, or the cluster
changes during a reconcile.

Where its watch is disturbed, the process is the one that runs in a cluster, from the router to the
lease, in virtual time.
"""

import random
from collections import Counter

import pytest

from tests.support.api_server.behind_its_back import edit_at_each_call, put_others_at_each_call
from tests.support.api_server.late_watch import LATE_SECONDS
from tests.support.faults.late_leader import wake_up_late
from tests.support.faults.scenarios import SCENARIOS
from tests.support.faults.views import OPTIONAL_VIEWS, VIEWS, VIEWS_EACH, View, Viewers
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, NODES


@pytest.mark.parametrize("name", SCENARIOS)
def test_any_stale_view_ends_as_the_true_view(
    name: str, request: pytest.FixtureRequest, played: Counter[str]
) -> None:
    viewers = Viewers(SCENARIOS[name])
    assert viewers.wrong_with_the_truth() == []
    count: int = request.config.getoption("--views", default=VIEWS_EACH)
    chosen = random.Random(name).sample(VIEWS, min(count, len(VIEWS)))
    wrong = {str(view): viewers.find_wrong(view, f"{name} {view}") for view in chosen}
    played["untrue views"] += len(wrong)
    assert {view: problems for view, problems in wrong.items() if problems} == {}


UNSEEN_DELETIONS = [view for view in VIEWS if view.kinds == (INFERENCE_DEPLOYMENTS,)]


@pytest.mark.parametrize("view", UNSEEN_DELETIONS, ids=str)
def test_nothing_is_created_for_an_object_whose_deletion_is_not_seen(view: View) -> None:
    viewers = Viewers(SCENARIOS["delete for good"])
    assert viewers.find_wrong(view, str(view)) == []


@pytest.mark.parametrize("view", OPTIONAL_VIEWS, ids=str)
@pytest.mark.parametrize("name", ["scale up", "scale down"])
def test_a_stale_view_of_optional_children_ends_as_the_true_view(name: str, view: View) -> None:
    assert Viewers(SCENARIOS[name]).find_wrong(view, f"{name} {view}") == []


@pytest.mark.parametrize(
    "name", ["wait for nodes that may come back", "leave a pool whose nodes are gone"]
)
def test_a_lost_node_is_reported_to_its_owners_without_a_list(name: str) -> None:
    """Nodes are heard of long after the pods that ran there, and nothing else happens then."""
    view = View("late", (NODES,), seconds=LATE_SECONDS)
    assert Viewers(SCENARIOS[name]).find_wrong(view, f"{name} {view}") == []


@pytest.mark.parametrize("how", ["late", "doubled", "disordered"])
@pytest.mark.parametrize("name", ["create", "re-plan to another pool", "roll on a full pool"])
def test_late_events_of_own_writes_cost_no_call(name: str, how: str) -> None:
    view = View(how, (DEPLOYMENTS,))
    assert Viewers(SCENARIOS[name]).find_spare_calls(view, f"{name} {view}") == ""


@pytest.mark.parametrize(
    "name",
    [
        "create",
        "scale up",
        "re-plan to another pool",
        "roll on a full pool",
        "leave a pool whose nodes are gone",
        "delete and make anew",
        "spread no more",
    ],
)
@pytest.mark.parametrize("watch_is_quick", [False, True], ids=["slow watch", "quick watch"])
async def test_an_edit_during_the_execution_of_a_plan_is_applied(
    name: str, watch_is_quick: bool
) -> None:
    assert await edit_at_each_call(SCENARIOS[name], watch_is_quick=watch_is_quick) == {}


@pytest.mark.parametrize(
    ("name", "child"),
    [
        ("re-plan to another pool", "llama-l40s"),
        ("roll on a full pool", "llama-mi300x"),
        ("re-plan to another pool", "llama-h100-sxm-80gb"),
        ("create", "llama-mi300x"),
    ],
    ids=["the one that goes", "the one that rolls", "one to be made", "the first one"],
)
async def test_a_foreign_object_in_the_place_of_a_child_is_left_alone(
    name: str, child: str
) -> None:
    assert await put_others_at_each_call(SCENARIOS[name], child) == {}


def test_a_leader_that_resumes_late_writes_nothing() -> None:
    assert wake_up_late() == []
