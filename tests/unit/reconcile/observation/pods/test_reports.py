"""How containers of deleted pods ended."""

from datetime import UTC, datetime

import pytest

from tonnage.reconcile.observation.child_pods import ChildPod, ContainerEnd, StartTimes
from tonnage.reconcile.observation.pods.reports import ended_pods

NOW = datetime(2026, 11, 27, tzinfo=UTC)
NO_SPACE, EXITED = ContainerEnd(3, "Error", "no space"), ContainerEnd(1, "Error", "exited")


@pytest.mark.parametrize(
    ("end", "keeper_end", "has_weights", "want"),
    [
        (None, NO_SPACE, False, [(NO_SPACE, True)]),
        (EXITED, NO_SPACE, False, [(EXITED, False)]),
        (EXITED, None, True, [(EXITED, False)]),
        (None, None, True, []),
        pytest.param(None, NO_SPACE, True, [], id="a second download succeeded"),
    ],
)
def test_a_pod_that_had_its_weights_did_not_end_for_lack_of_them(
    end: ContainerEnd | None,
    keeper_end: ContainerEnd | None,
    has_weights: bool,
    want: list[tuple[ContainerEnd, bool]],
) -> None:
    pod = ChildPod(
        name="p",
        placement="h100",
        node="n",
        created=NOW,
        ready=False,
        deleting=True,
        restarts=0,
        end=end,
        keeper_end=keeper_end,
        times=StartTimes(has_weights=has_weights),
    )
    assert [(one.end, one.lacks_weights) for one in ended_pods([pod], NOW)] == want
