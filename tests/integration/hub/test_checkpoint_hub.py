"""The real huggingface_hub reads a model from a small Hub on loopback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.foreign.hub_server import HubFile, HubServer, safetensors_file, safetensors_index
from tests.support.foreign.tiny_model import CONFIG, REPO, SHARDS, TOKEN, WEIGHTS, source
from tonnage.api.conditions import Reason
from tonnage.checkpoint.hub.reader import HubSettings, fetch_checkpoint
from tonnage.checkpoint.kept_facts import decode_facts
from tonnage.checkpoint.lookup import ModelLookupError
from tonnage.checkpoint.model import DType


def test_one_file_is_sized_from_its_header(hub: HubServer, settings: HubSettings) -> None:
    commit = hub.add_repo(REPO, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    got = fetch_checkpoint(source(), None, settings)
    assert got.shape.layers == 2
    assert got.shape.dtype is DType.BFLOAT16
    assert got.bytes_by_dtype == (("BF16", 128_000), ("F32", 256))
    assert got.weights_bytes == 128_256
    assert got.revision == commit


def test_shards_are_added_up_and_files_outside_the_index_left_out(
    hub: HubServer, settings: HubSettings
) -> None:
    files = {"config.json": CONFIG, "consolidated.safetensors": WEIGHTS, **SHARDS}
    hub.add_repo(REPO, {**files, "model.safetensors.index.json": safetensors_index(SHARDS)})
    got = fetch_checkpoint(source(), None, settings)
    assert got.bytes_by_dtype == (("BF16", 1408), ("F8_E4M3", 640))


@pytest.mark.parametrize(
    "weights", [{"model.safetensors": WEIGHTS}, {"pytorch_model.bin": WEIGHTS}, {}], ids=str
)
def test_the_facts_of_a_model_outlive_the_process(
    hub: HubServer, settings: HubSettings, weights: dict[str, HubFile]
) -> None:
    hub.add_repo(REPO, {"config.json": CONFIG, **weights})
    got = fetch_checkpoint(source(), None, settings)
    assert got.kept_facts is not None
    assert decode_facts(got.kept_facts, REPO, "main") == got


def test_weights_of_hundreds_of_gigabytes_are_not_downloaded(
    hub: HubServer, settings: HubSettings
) -> None:
    hub.add_repo(
        REPO,
        {
            "config.json": CONFIG,
            "model.safetensors": safetensors_file({"w": ("BF16", [70_000, 1_000_000])}),
        },
    )
    assert fetch_checkpoint(source(), None, settings).weights_bytes == 140_000_000_000


def test_a_listing_without_sizes_is_enough(hub: HubServer, settings: HubSettings) -> None:
    hub.sizes = False
    hub.add_repo(REPO, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    assert fetch_checkpoint(source(), None, settings).weights_bytes == 128_256


def test_a_download_without_range_support_is_aborted(hub: HubServer, settings: HubSettings) -> None:
    hub.ranges = False
    test_weights_of_hundreds_of_gigabytes_are_not_downloaded(hub, settings)


def test_a_header_longer_than_the_first_read_is_read_whole(
    hub: HubServer, settings: HubSettings
) -> None:
    tensors = {f"model.layers.{n}.mlp.experts.weight": ("U8", [1]) for n in range(3000)}
    hub.add_repo(REPO, {"config.json": CONFIG, "model.safetensors": safetensors_file(tensors)})
    assert fetch_checkpoint(source(), None, settings).weights_bytes == 3000
    assert len([line for line in hub.requests if "safetensors" in line]) == 2


@pytest.mark.parametrize(
    ("files", "want_bytes"),
    [
        pytest.param(
            {
                "pytorch_model-1.bin": 10,
                "pytorch_model-2.bin": 5,
                "training_args.bin": 3,
                "x.pt": 9,
            },
            15,
            id="pickles, without what is no weight",
        ),
        pytest.param({"model.pt": 9, "optimizer.pt": 4}, 9, id="torch files"),
        pytest.param({"original/model.bin": 7}, None, id="files in a folder vLLM does not load"),
    ],
)
def test_without_safetensors_the_size_of_the_files_counts(
    hub: HubServer, settings: HubSettings, files: dict[str, int], want_bytes: int | None
) -> None:
    sizes = {name: HubFile(b"", size) for name, size in files.items()}
    hub.add_repo(REPO, {"config.json": CONFIG, **sizes})
    got = fetch_checkpoint(source(), None, settings)
    assert (got.weights_bytes, got.bytes_by_dtype) == (want_bytes, ())


def test_a_revision_is_resolved_once_and_all_files_are_read_at_its_commit(
    hub: HubServer, settings: HubSettings
) -> None:
    files = {"config.json": CONFIG, "model.safetensors": WEIGHTS}
    commit = hub.add_repo(REPO, files, revisions=("main", "release/v2"))
    got = fetch_checkpoint(source(revision="release/v2"), None, settings)
    assert got.revision == commit
    assert hub.requests[0] == f"GET /api/models/{REPO}/revision/release%2Fv2?blobs=true"
    assert all(f"/resolve/{commit}/" in line for line in hub.requests[1:])


def test_headers_are_read_once_per_commit_and_access_is_checked_each_time(
    hub: HubServer, settings: HubSettings
) -> None:
    hub.add_repo(
        REPO, {"config.json": CONFIG, "model.safetensors": WEIGHTS}, gated=True, readers=(TOKEN,)
    )
    first = fetch_checkpoint(source(secret=True), TOKEN, settings)
    hub.requests.clear()
    assert fetch_checkpoint(source(secret=True), TOKEN, settings) == first
    assert [line.rsplit("/", 1)[1] for line in hub.requests] == ["main?blobs=true", "config.json"]
    with pytest.raises(ModelLookupError) as caught:
        fetch_checkpoint(source(), None, settings)
    assert caught.value.reason is Reason.MODEL_ACCESS_DENIED


def test_a_new_commit_is_read_again(hub: HubServer, settings: HubSettings) -> None:
    hub.add_repo(REPO, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    first = fetch_checkpoint(source(), None, settings)
    other = safetensors_file({"w": ("U8", [7])})
    hub.add_repo(REPO, {"config.json": CONFIG, "model.safetensors": other})
    second = fetch_checkpoint(source(), None, settings)
    assert (first.weights_bytes, second.weights_bytes) == (128_256, 7)


@pytest.mark.parametrize("damage", ["no JSON", '[["w", "BF99", [1], [], 1]]', "folder"])
def test_a_damaged_cache_only_costs_requests(
    hub: HubServer, settings: HubSettings, damage: str
) -> None:
    hub.add_repo(REPO, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    assert settings.cache_dir is not None
    if damage == "folder":
        settings.cache_dir.write_text("a file where the folder should be")
    else:
        fetch_checkpoint(source(), None, settings)
        (entry,) = settings.cache_dir.rglob("tensors.json")
        entry.write_text(damage)
    assert fetch_checkpoint(source(), None, settings).weights_bytes == 128_256


def test_a_private_repository_is_read_with_its_token_only(
    hub: HubServer, settings: HubSettings
) -> None:
    files = {"config.json": CONFIG, "model.safetensors": WEIGHTS}
    hub.add_repo(REPO, files, private=True, readers=(TOKEN,))
    got = fetch_checkpoint(source(secret=True), f"{TOKEN}\n", settings)
    assert got.weights_bytes == 128_256
    assert hub.authorizations == {f"Bearer {TOKEN}"}


def test_the_token_of_the_machines_account_is_never_sent(
    hub: HubServer, settings: HubSettings
) -> None:
    hub.add_repo(REPO, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    fetch_checkpoint(source(), None, settings)
    assert hub.authorizations == {None}


def test_hf_endpoint_is_honoured(hub: HubServer, tmp_path: Path) -> None:
    hub.add_repo(REPO, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    arguments = ["inspect", "--repo", REPO, "-o", "json"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    ended = subprocess.run(
        [sys.executable, "-m", "tonnage", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["weights_bytes"] == 128_256
