"""What Tonnage renders stands in the help of a real vLLM 0.32.0, with the kind of value it has."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.rendered_arguments import combined_lists, flags_of, golden_lists
from tonnage.render.defaults import defaults

HELP = Path(__file__).parents[1] / "data" / "vllm-serve-help.txt"
NAME = re.compile(r"(--?[A-Za-z][\w-]*)(?: (\{.*\}|[A-Z_]+))?")


@dataclass(frozen=True)
class Flag:
    """All names of one flag, and what follows them: nothing, a word for a value, or choices."""

    names: tuple[str, ...]
    value: str | None

    def takes(self, value: str | None) -> bool:
        if self.value is None or value is None:
            return self.value is value is None
        return not self.value.startswith("{") or value in self.value[1:-1].split(",")


def read_help(text: str) -> dict[str, Flag]:
    found = {}
    for line in re.findall(r"^  (-.*?)(?:   .*)?$", text, re.MULTILINE):
        names = NAME.findall(line)
        flag = Flag(tuple(name for name, _ in names), names[0][1] or None)
        found.update(dict.fromkeys(flag.names, flag))
    return found


FLAGS = read_help(HELP.read_text(encoding="utf-8"))


def test_the_help_is_read_whole():
    assert len(FLAGS) > 300
    assert FLAGS["-tp"].names == ("--tensor-parallel-size", "-tp")
    assert FLAGS["--enforce-eager"].value is None
    assert FLAGS["--kv-cache-dtype"].takes("fp8")
    assert not FLAGS["--kv-cache-dtype"].takes("int9")
    assert not FLAGS["--max-num-seqs"].takes(None)


@pytest.mark.parametrize("lists", [golden_lists, combined_lists])
def test_every_rendered_flag_is_there_and_takes_its_value(lists):
    for arguments in lists():
        for flag, value in flags_of(arguments):
            assert flag in FLAGS, f"{flag} of {arguments}"
            assert FLAGS[flag].takes(value), f"{flag}={value} of {arguments}"


def test_a_reserved_flag_is_reserved_by_all_its_names():
    reserved = defaults().reserved_arguments.flags
    assert {flag: set(FLAGS[flag].names) - set(reserved) for flag in reserved} == {
        flag: set() for flag in reserved
    }
