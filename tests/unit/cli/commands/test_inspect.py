"""`tonnage inspect` on the command line."""

import io
import json
from pathlib import Path

import pytest
import yaml

from tests.support.foreign.hub_server import safetensors_index
from tests.support.foreign.tiny_model import CONFIG, SHARDS
from tests.support.pages.command_line import Run, runner
from tonnage.api.conditions import Reason
from tonnage.api.model import HuggingFaceSource
from tonnage.checkpoint.adapter import AdapterFacts
from tonnage.checkpoint.hub.reader import HubSettings
from tonnage.checkpoint.lookup import ModelLookupError
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.shape import parse_config_text


@pytest.fixture
def tonnage(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "inspect")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    config, index = tmp_path / "config.json", tmp_path / "model.safetensors.index.json"
    config.write_bytes(CONFIG.start)
    index.write_bytes(safetensors_index(SHARDS).start)
    return str(config), str(index)


def test_files_are_shown_as_a_table(tonnage: Run, files: tuple[str, str]) -> None:
    code, out, err = tonnage("--config", files[0], "--index", files[1])
    assert (code, err) == (0, "")
    for words in ("LlamaForCausalLM", "hidden_size", "2048 bytes"):
        assert words in out


def test_without_an_index_the_weights_are_unknown(tonnage: Run, files: tuple[str, str]) -> None:
    assert "unknown" in tonnage("--config", files[0])[1]


def test_json_has_all_facts(tonnage: Run, files: tuple[str, str]) -> None:
    code, out, _ = tonnage("--config", files[0], "--index", files[1], "-o", "json")
    got = json.loads(out)
    assert code == 0
    assert got["shape"]["layer_kinds"][0]["mixers"][0]["kv_heads"] == 2
    assert got["weights_bytes"] == 2048
    assert got["bytes_by_dtype"] == {}


def test_a_repository_is_read_with_the_token_of_the_user(
    tonnage: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str, str | None]] = []

    def fetch(wanted: HuggingFaceSource, token: str | None, _: HubSettings) -> Checkpoint:
        asked.append((wanted.repo, wanted.revision, token))
        shape = parse_config_text(CONFIG.start)
        return Checkpoint(shape, 1024**3, (("BF16", 1024**3),), "c0ffee")

    monkeypatch.setattr("tonnage.cli.sources.repository.fetch_checkpoint", fetch)
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    code, out, _ = tonnage("--repo", "acme/tiny", "--revision", "v2")
    assert code == 0
    assert asked == [("acme/tiny", "v2", "hf_mine")]
    for words in ("c0ffee", "tensors in BF16", "1.00 GiB (1073741824 bytes)"):
        assert words in out


@pytest.mark.parametrize("name", ["acme/[/x]", "acme/[bold]llama[/bold]"])
def test_names_in_the_file_of_an_adapter_are_no_markup(
    tonnage: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    facts = AdapterFacts(16, ("q_proj", "[/y]"), base_model=name)
    monkeypatch.setattr("tonnage.cli.sources.repository.fetch_adapter", lambda *_: facts)
    code, out, err = tonnage("--adapter", "acme/sql-lora")
    assert (code, err) == (0, "")
    assert name in out
    assert "q_proj, [/y]" in out


def test_names_in_the_file_of_a_model_are_no_markup(
    tonnage: Run, files: tuple[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "markup.json"
    config.write_text(json.dumps({**json.loads(Path(files[0]).read_bytes()), "model_type": "[/x]"}))
    code, out, err = tonnage("--config", str(config))
    assert (code, err) == (0, "")
    assert "[/x]" in out


def test_a_refusal_of_the_hub_is_one_line(tonnage: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object) -> Checkpoint:
        raise ModelLookupError(Reason.MODEL_NOT_FOUND, "repository acme/tiny does not exist")

    monkeypatch.setattr("tonnage.cli.sources.repository.fetch_checkpoint", fetch)
    code, out, err = tonnage("--repo", "acme/tiny")
    assert (code, out) == (2, "")
    assert err == "tonnage inspect: repository acme/tiny does not exist\n"


@pytest.mark.parametrize(
    ("arguments", "want_words"),
    [
        pytest.param(
            [], "one of the arguments --repo --adapter --config --pvc is required", id="nothing"
        ),
        pytest.param(["--repo", "a/b", "--pvc", "x"], "not allowed with", id="two places"),
        pytest.param(["--repo", "no repo"], "--repo 'no repo': ", id="a name that is none"),
        pytest.param(["--repo", "a/b", "--revision", ""], "--revision '': ", id="no revision"),
        pytest.param(["--config", "/no/such.json"], "/no/such.json cannot be read", id="no file"),
        pytest.param(["--config", "{folder}"], "cannot be read: Is a directory", id="a folder"),
        pytest.param(["--config", "{index}"], "index.json: architectures", id="the wrong file"),
        pytest.param(
            ["--config", "{config}", "--index", "{nested}"], "RecursionError", id="a hostile index"
        ),
        pytest.param(["--pvc", "Models"], "--pvc 'Models': ", id="a claim in capitals"),
        pytest.param(
            ["--pvc", "m", "--path", "../x"], "--path '../x': ", id="a path that leads out"
        ),
        pytest.param(["--pvc", "m", "--path", "/x"], "--path '/x': ", id="an absolute path"),
        pytest.param(
            ["--pvc", "m", "--config-map", "A"], "--config-map 'A': ", id="a ConfigMap in capitals"
        ),
        pytest.param(
            ["--pvc", "m", "--namespace", "a.b"], "--namespace: 'a.b' is no name", id="a dot"
        ),
        pytest.param(["--pvc", "m", "--image", "x y"], "--image 'x y'", id="an image with a blank"),
        pytest.param(
            ["--pvc", "m", "-o", "json"],
            "--output is not for --pvc, but for --repo, --adapter, --config",
            id="a form for a Job",
        ),
        pytest.param(
            ["--config", "{config}", "--path", "x"],
            "--path is not for --config, but for --pvc",
            id="a path in a file",
        ),
    ],
)
def test_an_invalid_argument_is_named(
    tonnage: Run, files: tuple[str, str], tmp_path: Path, arguments: list[str], want_words: str
) -> None:
    (tmp_path / "nested.json").write_text("[" * 100_000)
    places = {"config": files[0], "index": files[1], "folder": str(tmp_path)}
    places["nested"] = str(tmp_path / "nested.json")
    code, out, err = tonnage(*(argument.format(**places) for argument in arguments))
    assert (code, out) == (2, "")
    assert want_words in err
    assert "Traceback" not in err


def test_a_file_above_the_limit_is_not_read(tonnage: Run, tmp_path: Path) -> None:
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(10**10)
    code, _, err = tonnage("--config", str(tmp_path / "huge.json"))
    assert code == 2
    assert "is larger than 4194304 bytes" in err


def test_a_volume_gets_a_job_that_kubectl_takes(tonnage: Run) -> None:
    code, out, _ = tonnage("--pvc", "models", "--path", "llama/70B", "--namespace", "chat")
    assert code == 0
    manifests = list(yaml.safe_load_all(out))
    kinds = [manifest["kind"] for manifest in manifests]
    assert kinds == ["ConfigMap", "ServiceAccount", "Role", "RoleBinding", "Job"]
    assert manifests[0]["metadata"] == {
        "name": "models-llama-70b",
        "namespace": "chat",
        "labels": {"app.kubernetes.io/name": "tonnage-inspect"},
    }


def test_the_manifests_are_readable(tonnage: Run) -> None:
    out = tonnage("--pvc", "models", "--path", "llama", "--config-map", "facts")[1]
    assert "&id" not in out
    assert '        - |\n          """Read the facts of a model' in out


def test_the_comment_above_says_what_to_do_next(tonnage: Run) -> None:
    out = tonnage("--pvc", "models", "--path", "llama", "--config-map", "facts")[1]
    comment = "\n".join(line[2:] for line in out.splitlines()[1:] if line.startswith("# "))
    assert yaml.safe_load(comment)["spec"]["model"]["source"]["persistentVolumeClaim"] == {
        "claimName": "models",
        "path": "llama",
        "facts": {"configMap": {"name": "facts"}},
    }


def test_the_config_can_come_from_standard_input(
    tonnage: Run, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = Path(files[0]).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert tonnage("--config", "-") == tonnage("--config", files[0])
