"""Every kubectl command of every page has options that the real kubectl knows."""

import subprocess

import pytest

from e2e.harness.binaries import program_path
from tests.support.pages.markdown_pages import ROOT, pages, read_page
from tests.support.pages.shell_lines import typed_commands

COMMANDS = {
    f"{page.name}:{command.line}": command.words
    for page in map(read_page, pages())
    for block in page.blocks
    if block.language in ("console", "sh")
    for command in typed_commands(block.text, block.line, prompt=block.language == "console")
    if command.words[0] == "kubectl" and "tonnage" not in command.words[1:2]
}


@pytest.mark.parametrize("where", COMMANDS)
def test_kubectl_knows_the_command_and_its_options(where):
    # With --help nothing is asked of a cluster, yet an unknown option is an error.
    result = subprocess.run(
        [program_path("kubectl"), *COMMANDS[where][1:], "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_the_runbook_is_among_the_pages():
    assert any(
        where.startswith(str((ROOT / "docs/runbook.md").relative_to(ROOT))) for where in COMMANDS
    )
