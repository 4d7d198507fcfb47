"""Every sample does on a mixed fleet what its comment says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.harness.operator_process import ROOT
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.user import User, has
from e2e.models import token_secret
from e2e.volumes import bind_volume
from tests.support.foreign.hub_server import HubFile, HubServer

SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
MODELS = [path for path in SAMPLES if not path.stem.startswith("acceleratorpool")]
POOLS = [path for path in SAMPLES if path not in MODELS]

RESERVED = {
    "acceleratorpool": {"accelerator": "mi300x"},
    "acceleratorpool-dra": {"accelerator": "h100-sxm-80gb", "draDriver": "current"},
    "acceleratorpool-node-disk": {"accelerator": "h100-sxm-80gb"},
}
"""The nodes that the sample of a pool selects."""

POOL_OF = {"llama-70b-node-disk": "acceleratorpool-node-disk"}
"""The sample of a pool that the sample of a model needs."""

# All others are placed.
NOT_PLACED = {"nothing-fits": "DoesNotFit", "llama-70b-approved-by-hand": "AwaitingApproval"}


@pytest.fixture
def gated_llama(user: User, hub: HubServer) -> None:
    """The repositories that samples name, and the Secret with a token for the gated one."""
    config = (ROOT / "tests" / "data" / "configs" / "llama-3.3-70b.json").read_text("utf-8")
    index = json.dumps({"metadata": {"total_size": 141_107_412_992}, "weight_map": {}})
    files = {
        "config.json": HubFile.of(config),
        "model.safetensors.index.json": HubFile.of(index),
    }
    hub.add_repo("meta-llama/Llama-3.3-70B-Instruct", files, gated=True, readers=("hf_sample",))
    smaller = (ROOT / "tests" / "data" / "configs" / "llama-3.1-8b.json").read_text("utf-8")
    hub.add_repo("meta-llama/Llama-3.1-8B-Instruct", {"config.json": HubFile.of(smaller)})
    deepseek = (ROOT / "tests" / "data" / "configs" / "deepseek-v3.json").read_text("utf-8")
    size = json.dumps({"metadata": {"total_size": 688_586_727_753}, "weight_map": {}})
    files = {"config.json": HubFile.of(deepseek), "model.safetensors.index.json": HubFile.of(size)}
    hub.add_repo("deepseek-ai/DeepSeek-R1-0528", files)
    for adapter, rank in (("acme/sql-lora", 16), ("acme/legal-lora", 32)):
        modules = ["q_proj", "o_proj"]
        lora = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": modules}
        adapted = {"adapter_config.json": HubFile.of(json.dumps(lora))}
        hub.add_repo(adapter, adapted, revisions=("main", "v2"))
    user.admin.apply(token_secret("hf", "hf_sample"))


@pytest.fixture
def models_claim(user: User) -> Iterator[None]:
    """The claim that a sample names."""
    name = f"{user.namespace}-models"
    bind_volume(user.admin, user.namespace, name, claim="models", capacity="500Gi")
    yield
    user.admin.delete("persistentvolumes", name, timeout=None)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_sample_is_placed_or_reports_why_not(
    path: Path,
    fleet: UseFleet,
    user: User,
    declare: Declare,
    gated_llama: None,
    models_claim: None,
) -> None:
    fleet("mixed")
    if path.stem in POOL_OF:
        pool = path.with_stem(POOL_OF[path.stem])
        declare(yaml.safe_load(pool.read_text("utf-8")))
    manifest = yaml.safe_load(path.read_text("utf-8"))
    stored = user.apply(manifest)
    name = stored["metadata"]["name"]
    if path.stem in NOT_PLACED:
        status = user.wait(name, has("Placed", "False", NOT_PLACED[path.stem]))
        assert has("Accepted")(status)
    else:
        user.wait_ready(name, timeout=180)


@pytest.mark.parametrize("path", POOLS, ids=lambda path: path.stem)
def test_a_sample_pool_owns_the_nodes_that_it_selects(
    path: Path, fleet: UseFleet, user: User, declare: Declare
) -> None:
    manifest, reserved = yaml.safe_load(path.read_text("utf-8")), RESERVED[path.stem]
    group = {"name": "reserved", "count": 1, "gpusPerNode": 8, **reserved}
    fleet({"groups": [{**group, "labels": manifest["spec"]["nodeSelector"]}]})
    declared = declare(manifest)
    pool = user.admin.wait_for(
        "apool",
        declared["metadata"]["name"],
        lambda pool: (pool.get("status") or {}).get("gpus", {}).get("free") == 8,
        timeout=90,
    )
    assert pool["status"]["accelerator"] == reserved["accelerator"]
