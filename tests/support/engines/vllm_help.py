"""The flags of a real vLLM 0.32.0, as its recorded help lists them."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

HELP = Path(__file__).parents[2] / "data" / "vllm-serve-help.txt"
NAME = re.compile(r"(--?[A-Za-z][\w-]*)(?: (\{.*\}|\['[^]]*\]|[A-Z_]+))?")


@dataclass(frozen=True)
class Flag:
    """All names of one flag, and what follows them: nothing, a word for a value, or choices, in
    braces or as a list of Python."""

    names: tuple[str, ...]
    value: str | None

    def takes(self, value: str | None) -> bool:
        if self.value is None or value is None:
            return self.value is value is None
        if self.value.startswith("["):
            return value in ast.literal_eval(self.value)
        return not self.value.startswith("{") or value in self.value[1:-1].split(",")


def read_help(text: str) -> dict[str, Flag]:
    flags = {}
    for line in re.findall(r"^  (-.*?)(?:   .*)?$", text, re.MULTILINE):
        names = NAME.findall(line)
        flag = Flag(tuple(name for name, _ in names), names[0][1] or None)
        flags.update(dict.fromkeys(flag.names, flag))
    return flags


FLAGS = read_help(HELP.read_text(encoding="utf-8"))
