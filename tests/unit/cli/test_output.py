"""Text from files and clusters cannot control the terminal."""

import pytest
import yaml

from tests.support.foreign_readers import NODE, POOL
from tonnage.cli.main import main
from tonnage.cli.output import make_console, make_table

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x00end"
WRITTEN = r"\x1b]0;owned"


def controls(text: str) -> bool:
    return any(ord(char) < 32 and char not in "\n\t" for char in text) or "\x9b" in text


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
