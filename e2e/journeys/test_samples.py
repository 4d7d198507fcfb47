"""Every sample does on a mixed fleet what its comment says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from e2e.harness.operator_process import ROOT
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import token_secret
from tests.support.hub_server import HubFile, HubServer

SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
MODELS = [path for path in SAMPLES if path.stem != "acceleratorpool"]

# All others are placed.
NOT_PLACED = {"nothing-fits": "DoesNotFit", "llama-70b-approved-by-hand": "AwaitingApproval"}


@pytest.fixture
def gated_llama(user: User, hub: HubServer) -> None:
    """The repository that a sample names, and the Secret with a token for it."""
    config = (ROOT / "tests" / "data" / "configs" / "llama-3.3-70b.json").read_text("utf-8")
    index = json.dumps({"metadata": {"total_size": 141_107_412_992}, "weight_map": {}})
    files = {
        "config.json": HubFile.of(config),
        "model.safetensors.index.json": HubFile.of(index),
    }
    hub.add_repo("meta-llama/Llama-3.3-70B-Instruct", files, gated=True, readers=("hf_sample",))
    user.admin.apply(token_secret("hf", "hf_sample"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_sample_is_placed_or_reports_why_not(
    path: Path, fleet: UseFleet, user: User, gated_llama: None
) -> None:
    fleet("mixed")
    manifest = yaml.safe_load(path.read_text("utf-8"))
    stored = user.apply(manifest)
    name = stored["metadata"]["name"]
    status = user.wait(name, has("Accepted"))
    if path.stem in NOT_PLACED:
        assert condition(status, "Placed")["reason"] == NOT_PLACED[path.stem]
    else:
        user.wait_ready(name)


def test_the_sample_pool_owns_the_nodes_that_it_selects(
    fleet: UseFleet, user: User, declare: Declare
) -> None:
    group = {"name": "reserved", "accelerator": "mi300x", "count": 1, "gpusPerNode": 8}
    fleet({"groups": [{**group, "labels": {"example.com/nodepool": "mi300x-reserved"}}]})
    (path,) = set(SAMPLES) - set(MODELS)
    declared = declare(yaml.safe_load(path.read_text("utf-8")))
    pool = user.admin.wait_for(
        "apool",
        declared["metadata"]["name"],
        lambda pool: (pool.get("status") or {}).get("gpus", {}).get("free") == 8,
    )
    assert pool["status"]["accelerator"] == "mi300x"
