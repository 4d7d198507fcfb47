"""The Job that reads a volume: its minimal permissions, and runs of its program."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import certifi
import pytest

from e2e.harness.loopback_server import LoopbackServer
from tests.support.foreign.hub_server import HubFile, safetensors_file, safetensors_index
from tests.support.foreign.tiny_model import CONFIG, SHARDS, WEIGHTS
from tonnage.api.model import ConfigMapSource, ModelFacts, PersistentVolumeClaimSource
from tonnage.checkpoint.facts import adapter_from_config_map, checkpoint_from_config_map
from tonnage.checkpoint.safetensors.headers import parse_header
from tonnage.checkpoint.volume.job import read_volume_script, render_inspection

POD_TOKEN = "pod-token"


def claim(path: str = "llama") -> PersistentVolumeClaimSource:
    facts = ModelFacts(config_map=ConfigMapSource(name="facts"))
    return PersistentVolumeClaimSource(claim_name="models", path=path, facts=facts)


def rendered(config_map: str = "facts", path: str = "llama") -> dict[str, dict[str, Any]]:
    manifests = render_inspection(claim(path), "chat", config_map, "python:3.13-slim")
    return {manifest["kind"]: manifest for manifest in manifests}


def container(manifests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (only,) = manifests["Job"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def test_the_job_may_patch_one_config_map_and_nothing_else() -> None:
    got = rendered()
    assert got["Role"]["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["facts"],
            "verbs": ["patch"],
        }
    ]
    name = got["Job"]["spec"]["template"]["spec"]["serviceAccountName"]
    assert got["RoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "name": name, "namespace": "chat"}
    ]
    assert got["RoleBinding"]["roleRef"]["name"] == got["Role"]["metadata"]["name"]
    assert got["ServiceAccount"]["metadata"]["name"] == name
    assert {manifest["metadata"]["namespace"] for manifest in got.values()} == {"chat"}


def test_applying_the_manifest_again_keeps_the_data_of_the_config_map() -> None:
    assert "data" not in rendered()["ConfigMap"]


def test_the_volume_is_read_only_and_the_pod_restricted() -> None:
    got = rendered()
    pod = got["Job"]["spec"]["template"]["spec"]
    assert pod["volumes"] == [
        {"name": "model", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}
    ]
    assert container(got)["volumeMounts"] == [
        {"name": "model", "mountPath": "/volume", "readOnly": True}
    ]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container(got)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize(
    ("path", "want"), [("", "/volume"), ("llama", "/volume/llama"), ("a/b", "/volume/a/b")]
)
def test_the_path_is_below_the_mount(path: str, want: str) -> None:
    environment = {
        entry["name"]: entry.get("value") for entry in container(rendered(path=path))["env"]
    }
    assert environment["MODEL_DIR"] == want


def test_the_names_are_dns_labels_and_differ_for_each_config_map() -> None:
    names = [
        rendered(config_map)["Job"]["metadata"]["name"]
        for config_map in ("facts", "facts.v2", "facts-v2", "x" * 253, "x" * 252 + "y")
    ]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 63 and "." not in name and not name.endswith("-") for name in names)
    assert names[0] == "tonnage-inspect-facts"


def test_the_program_needs_only_the_standard_library() -> None:
    tree = ast.parse(read_volume_script(), feature_version=(3, 9))
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        node.module.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert imported <= sys.stdlib_module_names


@dataclass
class FakeApi:
    """A fake API server: records patches and answers with `status`."""

    status: int = 200
    patches: list[tuple[str, str | None, str | None, Any]] = field(default_factory=list)
    endpoint: str = ""


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        def do_PATCH(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = self.headers.get("Authorization"), self.headers.get("Content-Type")
            fake.patches.append((self.path, *headers, body))
            self.send_response(fake.status)
            self.end_headers()
            self.wfile.write(b'{"message": "configmaps \\"facts\\" not found"}')

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with LoopbackServer(Handler) as server:
        fake.endpoint = server.url
        yield fake


def run_job(
    tmp_path: Path, api: FakeApi, files: dict[str, HubFile]
) -> subprocess.CompletedProcess[str]:
    """Run the Job's command with its environment, in folders instead of the pod's mounts."""
    model, account = tmp_path / "volume" / "llama", tmp_path / "account"
    model.mkdir(parents=True)
    account.mkdir()
    (account / "token").write_text(f"{POD_TOKEN}\n")
    (account / "ca.crt").write_bytes(Path(certifi.where()).read_bytes())
    for name, file in files.items():
        with (model / name).open("wb") as opened:
            opened.write(file.start)
            opened.truncate(file.size)
    job = container(rendered())
    environment = {entry["name"]: entry.get("value", "chat") for entry in job["env"]}
    environment["MODEL_DIR"] = environment["MODEL_DIR"].replace("/volume", f"{tmp_path}/volume")
    environment |= {"API_SERVER": api.endpoint, "SERVICE_ACCOUNT_DIR": str(account)}
    # -I: the program cannot import packages of this environment, as in a bare image
    command = [sys.executable, "-I", "-S", *job["command"][1:]]
    return subprocess.run(
        command,
        env={"PATH": os.defpath, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("files", "want_bytes", "want_by_dtype"),
    [
        pytest.param(
            {"model.safetensors": WEIGHTS},
            128_256,
            (("BF16", 128_000), ("F32", 256)),
            id="one file",
        ),
        pytest.param(
            {
                **SHARDS,
                "model.safetensors.index.json": safetensors_index(SHARDS),
                "consolidated.safetensors": WEIGHTS,
            },
            2048,
            (("BF16", 1408), ("F8_E4M3", 640)),
            id="shards, and a file outside the index",
        ),
        pytest.param(
            {"model.safetensors": safetensors_file({"w": ("BF16", [1000, 1000, 1000])})},
            2 * 10**9,
            (("BF16", 2 * 10**9),),
            id="gigabytes, of which the Job reads only the header",
        ),
        pytest.param({"pytorch_model.bin": HubFile(b"", 77)}, 77, (), id="pickles"),
    ],
)
def test_the_job_writes_a_checkpoint(
    tmp_path: Path,
    api: FakeApi,
    files: dict[str, HubFile],
    want_bytes: int,
    want_by_dtype: tuple[tuple[str, int], ...],
) -> None:
    process = run_job(tmp_path, api, {"config.json": CONFIG, **files})
    assert (process.returncode, process.stderr) == (0, "")
    ((path, authorization, content_type, body),) = api.patches
    assert path == "/api/v1/namespaces/chat/configmaps/facts"
    assert (authorization, content_type) == (f"Bearer {POD_TOKEN}", "application/merge-patch+json")
    got = checkpoint_from_config_map(ConfigMapSource(name="facts"), body["data"])
    assert got.shape.layers == 2
    assert (got.weights_bytes, got.bytes_by_dtype) == (want_bytes, want_by_dtype)


ADAPTER = HubFile.of(json.dumps({"r": 24, "lora_alpha": 48, "target_modules": ["q_proj"]}))
ADAPTER_FILES = {
    "adapter_config.json": ADAPTER,
    "adapter_model.safetensors": safetensors_file(
        {
            f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_A.weight": (
                "BF16",
                [24, 4096],
            )
            for layer in range(2)
        }
    ),
}


def test_the_job_writes_an_adapter(tmp_path: Path, api: FakeApi) -> None:
    process = run_job(tmp_path, api, ADAPTER_FILES)
    assert (process.returncode, process.stderr) == (0, "")
    ((*_, body),) = api.patches
    got = adapter_from_config_map("facts", body["data"])
    assert (got.rank, got.target_modules, got.hidden_size) == (24, ("q_proj",), 4096)
    assert got.weights_bytes == 2 * 2 * 24 * 4096


def test_an_adapter_without_safetensors_has_only_its_config(tmp_path: Path, api: FakeApi) -> None:
    run_job(tmp_path, api, {"adapter_config.json": ADAPTER, "adapter_model.bin": ADAPTER})
    ((*_, body),) = api.patches
    assert list(body["data"]) == ["adapter_config.json"]


def test_a_folder_with_a_model_and_an_adapter_has_both(tmp_path: Path, api: FakeApi) -> None:
    files = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "adapter_config.json": ADAPTER}
    run_job(tmp_path, api, files)
    ((*_, body),) = api.patches
    model = checkpoint_from_config_map(ConfigMapSource(name="facts"), body["data"])
    adapter = adapter_from_config_map("facts", body["data"])
    assert (model.weights_bytes, adapter.rank, adapter.hidden_size) == (128_256, 24, None)


def test_the_job_writes_the_same_table_as_parse_header(tmp_path: Path, api: FakeApi) -> None:
    tensors = {"lm_head.weight": ("BF16", [9, 2]), "norm.weight": ("F32", [2])}
    for layer in (0, 1, 2, 5):
        tensors |= {
            f"model.layers.{layer}.mlp.experts.{expert}.w1.weight": ("F8_E4M3", [4, 4])
            for expert in range(2 if layer < 5 else 3)
        }
    file = safetensors_file(tensors)
    process = run_job(tmp_path, api, {"config.json": CONFIG, "model.safetensors": file})
    assert (process.returncode, process.stderr) == (0, "")
    ((*_, body),) = api.patches
    got = checkpoint_from_config_map(ConfigMapSource(name="facts"), body["data"])
    assert got.tensors == parse_header(file.start)
    assert len(got.tensors.rows) == 4


@pytest.mark.parametrize(
    ("files", "want_words"),
    [
        pytest.param({}, "FileNotFoundError", id="the wrong path"),
        pytest.param({"config.json": CONFIG}, "neither *.safetensors nor *.bin", id="no weights"),
        pytest.param({"config.json": HubFile.of("{nope")}, "JSONDecodeError", id="no JSON"),
        pytest.param(
            {"config.json": HubFile(b"", 10**6)}, "more than 900000", id="a huge config.json"
        ),
        pytest.param(
            {"config.json": HubFile.of("[" * 99_999)}, "RecursionError", id="JSON without end"
        ),
        pytest.param(
            {"config.json": CONFIG, "model.safetensors": HubFile.of("<!DOCTYPE html>")},
            "is no safetensors file",
            id="weights that are a page",
        ),
        pytest.param(
            {"config.json": CONFIG, "model.safetensors": HubFile(WEIGHTS.start, WEIGHTS.size - 9)},
            "it is cut off",
            id="weights cut off",
        ),
        pytest.param(
            {"config.json": CONFIG, "model.safetensors.index.json": HubFile.of("[]")},
            "TypeError",
            id="an index that is a list",
        ),
        pytest.param(
            {"config.json": CONFIG, "model.safetensors.index.json": safetensors_index(SHARDS)},
            "model-00001-of-00002.safetensors",
            id="shards that are missing",
        ),
    ],
)
def test_the_error_for_an_unreadable_volume_is_one_line_and_the_job_writes_nothing(
    tmp_path: Path, api: FakeApi, files: dict[str, HubFile], want_words: str
) -> None:
    process = run_job(tmp_path, api, files)
    assert process.returncode == 1
    assert want_words in process.stderr
    assert process.stderr.count("\n") == 1
    assert api.patches == []


def test_the_job_reports_an_error_of_the_api_server(tmp_path: Path, api: FakeApi) -> None:
    api.status = 404
    process = run_job(tmp_path, api, {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    assert process.returncode == 1
    assert 'answered 404: {"message": "configmaps \\"facts\\" not found"}' in process.stderr
    assert POD_TOKEN not in process.stderr
