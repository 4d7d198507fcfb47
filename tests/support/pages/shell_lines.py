"""Shell commands as they stand in a page: what a reader types, word by word."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

_SEPARATORS = {"|", "||", "&&", ";", "&"}
_REDIRECTIONS = {">", ">>", "<", "2>", "2>>", "&>", ">&"}
_HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# Not left to shlex, which sees a comment in `page#anchor` and an argument in `2>file`.
_COMMENT = re.compile(r"(?:^|\s)#(?:\s.*)?$")
_ERRORS_REDIRECTED = re.compile(r"\s2>>?\s*&?\S+")


@dataclass(frozen=True, slots=True)
class Command:
    """One program with its arguments; `given` is a here document that it reads."""

    line: int
    words: tuple[str, ...]
    given: str = ""


@dataclass(slots=True)
class _Typed:
    line: int
    text: str
    given: list[str] = field(default_factory=list)


def typed_commands(text: str, first_line: int, *, prompt: bool) -> Iterator[Command]:
    """The commands of a block. With `prompt`, only lines after `$ ` are typed; the rest is output.

    Raises ValueError for a line that no shell would read.
    """
    lines = list(enumerate(text.splitlines(), first_line))
    for typed in _typed(lines, prompt=prompt):
        for words in _commands(_HERE_DOCUMENT.sub("", typed.text)):
            yield Command(typed.line, words, "\n".join(typed.given))


def _typed(lines: list[tuple[int, str]], *, prompt: bool) -> Iterator[_Typed]:
    """Whole commands: continued lines joined, here documents next to the line that reads them."""
    rest = iter(lines)
    for number, line in rest:
        if prompt and not line.startswith("$ "):
            continue
        typed = _Typed(number, line.removeprefix("$ ") if prompt else line)
        while typed.text.endswith("\\"):
            typed.text = typed.text[:-1] + next(rest, (0, ""))[1].removeprefix("> ")
        if here_document := _HERE_DOCUMENT.search(typed.text):
            for _, given in rest:
                if given.removeprefix("> ").strip() == here_document[1]:
                    break
                typed.given.append(given.removeprefix("> ") if prompt else given)
        yield typed


def _commands(text: str) -> Iterator[tuple[str, ...]]:
    """The commands of one line, without assignments before them and without redirections."""
    plain = _ERRORS_REDIRECTED.sub("", _COMMENT.sub("", text))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    redirected = False
    for word in [*lexer, ";"]:
        if word in _SEPARATORS:
            if words:
                yield tuple(words)
            words = []
        elif word in _REDIRECTIONS:
            redirected = True
        elif redirected:
            redirected = False
        elif words or not _ASSIGNMENT.match(word):
            words.append(word)
