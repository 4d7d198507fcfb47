"""The command line reports an input error in one line with an exit code for scripts."""

import errno
import io
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.engines.shapes import CONFIGS
from tests.support.fleets.gpu_nodes import amd_node
from tonnage import __version__
from tonnage.api.crd import crd_manifests
from tonnage.cli import main as program
from tonnage.cli.main import SUBCOMMANDS, load_subcommand, main


def test_version_says_what_is_installed(capsys):
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"tonnage {__version__} (Python 3.")


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: tonnage {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["crds", "plan", "pools"])
def test_the_help_of_a_subcommand_keeps_the_names_of_kinds(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    purpose = SUBCOMMANDS[name]
    text = " ".join(capsys.readouterr().out.split())
    assert f"{purpose[0].upper()}{purpose[1:]}." in text


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_is_a_module_with_the_two_functions(name):
    module = load_subcommand(name)
    assert callable(module.add_arguments)
    assert callable(module.run)


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["sail"], "invalid choice: 'sail'"),
        (["plan"], "the following arguments are required: -f/--filename"),
        (["crds", "--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_a_wrong_command_line_ends_with_2(argv, want, capsys):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert want in capsys.readouterr().err


@pytest.mark.parametrize(
    ("called", "want"),
    [
        ("/usr/local/bin/tonnage", "tonnage"),
        ("/usr/local/bin/kubectl-tonnage", "kubectl tonnage"),
        ("kubectl-tonnage.exe", "kubectl tonnage"),
        ("__main__.py", "tonnage"),
    ],
)
def test_the_plugin_uses_the_name_that_users_type(called, want, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [called])
    assert main(["pools", "--nodes", "missing"]) == 2
    assert capsys.readouterr().err.startswith(f"{want} pools: missing cannot be read")
    with pytest.raises(SystemExit):
        main(["pools", "--help"])
    assert capsys.readouterr().out.startswith(f"usage: {want} pools ")


def test_unusable_input_is_one_line_on_stderr(tmp_path, capsys):
    assert main(["pools", "--nodes", str(tmp_path / "missing")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        f"tonnage pools: {tmp_path}/missing cannot be read: No such file or directory"
    ]


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        (["plan", "-f", "-", "--nodes", "-"], "--filename and --nodes"),
        (["plan", "-f", "-", "-f", "-", "--nodes", "n"], "--filename and --filename"),
        (["pools", "--nodes", "-", "--pods=-"], "--nodes and --pods"),
        (["explain", "a", "--nodes", "-", "--corrections", "-"], "--corrections and --nodes"),
        (["fit", "--config", "-", "--safetensors-index", "-"], "--config and --safetensors-index"),
    ],
)
def test_two_inputs_from_standard_input_are_refused_unread(argv, want, capsys):
    assert main(argv) == 2
    assert f"- is given for {want}, but standard input can be read once" in capsys.readouterr().err


def test_only_the_subcommand_in_use_is_loaded():
    code = (
        "import sys; from tonnage.cli.main import main; main(['version']); "
        "print([name for name in ('kopf', 'kubernetes', 'rich', 'yaml') if name in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.splitlines()[-1] == "[]"


SLOW_CLIENTS = ("aiohttp", "huggingface_hub", "kopf", "kubernetes", "prometheus_api_client",
                "prometheus_client", "requests")  # fmt: skip
"""Clients and servers of the operator, which take longer to import than a short command takes."""

LLAMA = str(CONFIGS / "llama-3.1-8b.json")
FIT = ["fit", "--config", LLAMA, "--max-model-len", "8192"]


@pytest.fixture
def offline(tmp_path) -> dict[str, list[str]]:
    """Commands that read files, by name."""
    facts = {"metadata": {"name": "facts"}, "data": {"config.json": Path(LLAMA).read_text()}}
    manifest = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "llama"},
        "spec": {
            "model": {"source": {"configMap": {"name": "facts"}}},
            "workload": {"maxModelLen": 8192},
        },
    }
    objects = [manifest, {"apiVersion": "v1", "kind": "ConfigMap", **facts}, amd_node("a")]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return {
        "--help": ["--help"],
        "fit --help": ["fit", "--help"],
        "fit": [*FIT, "--accelerator", "mi300x"],
        "fit, several": [*FIT, "--accelerator", "amd"],
        "plan": ["plan", "-f", str(file), "--nodes", str(file)],
        "explain": ["explain", "llama", "--nodes", str(file)],
        "pools": ["pools", "--nodes", str(file)],
        "accelerators": ["accelerators"],
    }


@pytest.mark.parametrize(
    "command",
    ["--help", "fit --help", "fit", "fit, several", "plan", "explain", "pools", "accelerators"],
)
def test_a_command_without_a_cluster_loads_no_client(command, offline):
    code = (
        "import sys\n"
        "from tonnage.cli.main import main\n"
        "try: code = main(sys.argv[1:])\n"
        "except SystemExit as ended: code = ended.code\n"
        f"loaded = [name for name in {SLOW_CLIENTS!r} if name in sys.modules]\n"
        "print(code, loaded, file=sys.stderr)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, *offline[command]], capture_output=True, text=True, check=True
    )
    assert process.stderr.splitlines()[-1] == "0 []", process.stderr


class Unwritable(io.StringIO):
    """An output on which each write fails."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, _):
        raise self.error


@pytest.mark.parametrize("command", ["crds", "accelerators"], ids=["text", "a table"])
def test_a_closed_pipe_is_no_error(command, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Unwritable(BrokenPipeError()))
    assert main([command]) == 0


@pytest.mark.parametrize("command", ["crds", "accelerators"], ids=["text", "a table"])
def test_a_full_disk_is_named(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Unwritable(OSError(errno.ENOSPC, "No space left")))
    assert main([command]) == 2
    want = f"{command}: the output cannot be written: No space left\n"
    assert capsys.readouterr().err.endswith(want)


def test_a_batch_that_cannot_be_answered_is_not_called_unreadable(tmp_path, monkeypatch, capsys):
    batch = tmp_path / "cases.jsonl"
    batch.write_text("{}\n")
    monkeypatch.setattr(sys, "stdout", Unwritable(OSError(errno.ENOSPC, "No space left")))
    assert main(["fit", "--batch", str(batch)]) == 2
    assert "cannot be read" not in capsys.readouterr().err


def test_an_interrupt_ends_as_a_shell_expects(monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    module = load_subcommand("version")
    monkeypatch.setattr(module, "run", interrupted)
    assert program.main(["version"]) == 130


def test_crds_are_printed_as_one_stream(capsys):
    assert main(["crds"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == list(crd_manifests().values())


def test_crds_are_written_one_file_a_kind(tmp_path, capsys):
    folder = tmp_path / "new" / "folder"
    assert main(["crds", "--output-dir", str(folder)]) == 0
    written = {path.name: yaml.safe_load(path.read_text()) for path in folder.iterdir()}
    assert written == crd_manifests()
    assert capsys.readouterr().out.split() == [str(folder / name) for name in crd_manifests()]


def test_crds_that_cannot_be_written_are_an_error(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["crds", "--output-dir", str(tmp_path / "file")]) == 2
    assert "cannot write there: File exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["explain", "x", "-n", "Chat"], "--namespace: 'Chat' is no name of a namespace"),
        (["explain", "x", "-n", ""], "--namespace: '' is no name of a namespace"),
        (["plan", "-f", "x", "-n", "a.b"], "--namespace: 'a.b' is no name of a namespace"),
        (["restart", "x", "-n", "a" * 64], "at most 63 lowercase letters"),
        (["plan", "-f", "x", "--operator-namespace", "_"], "'_' is no name of a namespace"),
        (["explain", ""], "'' has no name; give NAME or KIND/NAME"),
        (["explain", "infd/"], "'infd/' has no name; give NAME or KIND/NAME"),
    ],
)
def test_a_name_that_no_object_can_have_is_refused_before_the_cluster_is_read(
    capsys, monkeypatch, arguments, want
):
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert want in capsys.readouterr().err
