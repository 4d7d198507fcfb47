"""A cluster without LeaderWorkerSet, which is installed later, and removed again."""

from __future__ import annotations

from pathlib import Path

from e2e.harness.leader_worker_set import LeaderWorkerSetController
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, candidate, condition, has
from e2e.models import inference
from e2e.nodes.descriptions import connected_h100s

WITHIN = 180

H100S: Json = {"groups": [connected_h100s(3)]}


def test_one_node_goes_on_and_the_kind_is_noticed_when_it_comes_and_when_it_goes(
    control_plane: Stack, fleet: UseFleet, user: User, tmp_path: Path
) -> None:
    fleet(H100S)
    user.apply(inference("small", "llama-3.3-70b"))
    user.wait_ready("small")
    before = user.pods("small")
    user.apply(inference("deepseek", "deepseek-v3"))
    status = user.wait("deepseek", has("Placed", "False", "DoesNotFit"), timeout=WITHIN)
    assert candidate(status, "h100-sxm-80gb")["reason"] == "WorkloadKindMissing"
    assert "kubectl apply --server-side -f" in condition(status, "Placed")["message"]
    folder, pki = tmp_path / "lws", control_plane.layout.pki
    with LeaderWorkerSetController(user.admin, folder, pki):
        status = user.wait_ready("deepseek", timeout=2 * WITHIN)
        assert status["placements"][0]["nodesPerReplica"] == 2
    # The API server deletes the LeaderWorkerSets with their kind.
    status = user.wait("deepseek", has("Placed", "False", "DoesNotFit"), timeout=2 * WITHIN)
    assert candidate(status, "h100-sxm-80gb")["reason"] == "WorkloadKindMissing"
    assert condition(status, "Ready")["status"] == "False"
    user.wait_ready("small")
    assert user.pods("small") == before
    # Without the kind, the garbage collector does not know whose they are.
    for orphan in user.admin.items("statefulsets"):
        user.admin.delete("statefulsets", orphan["metadata"]["name"])
