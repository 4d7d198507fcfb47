"""The width of all output, and text from files and clusters that cannot control the terminal."""

from pathlib import Path

import pytest
import yaml

from tests.support.engines.shapes import CONFIGS
from tests.support.fleets.gpu_nodes import amd_node
from tests.support.foreign.readers import NODE, POOL
from tonnage.cli.main import main
from tonnage.cli.output import make_console, make_table

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x00\u202edlot\u2066\u2028end"
WRITTEN = r"\x1b]0;owned"


LLAMA = str(CONFIGS / "llama-3.1-8b.json")


@pytest.fixture
def object_file(tmp_path) -> str:
    """An InferenceDeployment, its model, and a node."""
    facts = {"metadata": {"name": "facts"}, "data": {"config.json": Path(LLAMA).read_text()}}
    spec = {
        "model": {"source": {"configMap": {"name": "facts"}}},
        "workload": {"maxModelLen": 131072, "concurrency": 100},
        "replicas": 1,
    }
    infd = {"kind": "InferenceDeployment", "metadata": {"name": "llama"}, "spec": spec}
    bodies = [
        {"apiVersion": "tonnage.dev/v1alpha1", **infd},
        {"apiVersion": "v1", "kind": "ConfigMap", **facts},
        amd_node("a"),
    ]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(bodies))
    return str(file)


def outputs(file: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What each command with tables and lines of text prints."""
    fit = ["fit", "--config", LLAMA, "--accelerator"]
    commands = [
        ["plan", "-f", file, "--nodes", file],
        ["explain", "llama", "--nodes", file],
        ["pools", "--nodes", file],
        ["accelerators"],
        [*fit, "mi300x"],
        [*fit, "h100,l4", "--max-model-len", "100k"],
    ]
    printed = {}
    for command in commands:
        assert main(command) in (0, 3)
        printed[" ".join(command)] = capsys.readouterr().out
    return printed


@pytest.mark.parametrize("columns", [60, 90, 200])
def test_all_output_is_as_wide_as_columns_says(
    object_file: str,
    columns: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for command, out in outputs(object_file, capsys).items():
        longest = max(map(len, out.splitlines()))
        assert longest <= columns, command
    monkeypatch.setenv("COLUMNS", "10000")
    for command, out in outputs(object_file, capsys).items():
        assert "\n    " not in out.replace("\n\n", ""), f"{command} wraps a cell"


@pytest.mark.parametrize("columns", ["", "wide", "0", "-1"])
def test_without_a_width_tables_have_160_columns_and_lines_stay_whole(
    object_file: str,
    columns: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for command, out in outputs(object_file, capsys).items():
        lines = out.splitlines()
        if command.startswith("plan"):
            assert any("Placed=" in line and len(line) > 160 for line in lines)
        assert max(len(line) for line in lines if "   " in line.strip()) <= 160


def controls(text: str) -> bool:
    if any(char in text for char in "\x9b\u202e\u2066\u2028"):
        return True
    return any(ord(char) < 32 and char not in "\n\t" for char in text)


def test_tables_and_lines_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    console, table = make_console(), make_table("NAME")
    table.add_row(EVIL)
    console.print(table)
    console.print(f"[bold]{EVIL}[/bold]", soft_wrap=True)
    printed = capsys.readouterr().out
    assert not controls(printed)
    assert printed.count(WRITTEN) == 2


def test_colours_of_the_program_stay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    make_console().print("[bold red]no[/]")
    assert "\x1b[1;31mno" in capsys.readouterr().out


def test_an_untrusted_fleet_is_shown_and_refused_without_them(
    tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = {**NODE, "metadata": {**NODE["metadata"], "name": f"n{EVIL}"}}
    pool = {**POOL, "metadata": {"name": f"p{EVIL}"}}
    file = tmp_path / "fleet.yaml"
    for bodies in ([node, pool], [node, {**pool, "spec": {"nodeSelector": EVIL}}]):
        file.write_text(yaml.safe_dump_all(bodies))
        main(["pools", "--nodes", str(file)])
        printed = capsys.readouterr()
        assert WRITTEN in printed.out + printed.err
        assert not controls(printed.out + printed.err)
