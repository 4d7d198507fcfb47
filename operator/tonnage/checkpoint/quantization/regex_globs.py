"""Translate untrusted regular expressions to shell patterns instead of running them.

Checkpoints name layers by expressions such as `.*self_attn\\.(q|k|v)_proj$`. A regular expression
can take unlimited time to match; a shell pattern cannot. The expressions of published checkpoints
have equivalents: each alternative becomes a pattern, a repeated character class becomes `*`.
"""

from typing import Final

MAX_GLOBS: Final = 256
"""Most patterns for one expression; published ones list up to 100 layer numbers."""

MAX_GROUPS: Final = 32
"""Most groups of one expression; nested groups are nested calls."""

_ANY_CLASSES: Final = frozenset("dwDWsS")
_REPEATS: Final = frozenset("*+?")


def regex_to_globs(expression: str) -> tuple[str, ...] | None:
    """Return the shell patterns that match the same names as `re.match`, None if impossible.

    The pattern of an alternative without `$` ends with `*`, as re.match ignores the rest.
    """
    if expression.count("(") > MAX_GROUPS:
        return None
    try:
        globs, rest = _parse_alternatives(expression.removeprefix("^"))
    except _NotTranslatableError:
        return None
    patterns = tuple(glob[:-1] if glob.endswith("$") else f"{glob}*" for glob in globs)
    return None if rest or any("$" in pattern for pattern in patterns) else patterns


class _NotTranslatableError(Exception):
    """The expression has a part without an equivalent, or needs too many patterns."""


def _parse_alternatives(text: str) -> tuple[list[str], str]:
    """Return the patterns of `a|b|c` up to a closing parenthesis, and the rest from there on."""
    globs: list[str] = []
    while True:
        alternative_globs, text = _parse_sequence(text)
        globs += alternative_globs
        if not text.startswith("|"):
            return _check_count(globs), text
        text = text[1:]


def _parse_sequence(text: str) -> tuple[list[str], str]:
    globs = [""]
    while text and text[0] not in "|)":
        atoms, repeatable, text = _parse_atom(text)
        if text[:1] in _REPEATS:
            atoms = _repeat(atoms, repeatable, text[0])
            text = text[1:].removeprefix("?")  # lazy or not: the same names match
        globs = _check_count([glob + atom for glob in globs for atom in atoms])
    return globs, text


def _repeat(atoms: list[str], repeatable: bool, quantifier: str) -> list[str]:
    if quantifier == "?":
        return ["", *atoms]
    if not repeatable:
        raise _NotTranslatableError
    return ["*"] if quantifier == "*" else ["?*"]


def _parse_atom(text: str) -> tuple[list[str], bool, str]:
    """Return the patterns of a character, class or group, whether it may repeat, and the rest."""
    first, rest = text[0], text[1:]
    if first == "(":
        return _parse_group(rest)
    if first == "[":
        return _parse_character_class(rest)
    if first == "\\":
        return _parse_escape(rest)
    if first == ".":
        return ["."], True, rest  # in names of layers, almost always a literal dot
    if first in "{}*+?^":
        raise _NotTranslatableError
    return [first], False, rest


def _parse_group(text: str) -> tuple[list[str], bool, str]:
    if text.startswith("?") and not text.startswith("?:"):
        raise _NotTranslatableError  # lookahead or lookbehind
    globs, rest = _parse_alternatives(text.removeprefix("?:"))
    if not rest.startswith(")"):
        raise _NotTranslatableError
    return globs, False, rest[1:]


def _parse_character_class(text: str) -> tuple[list[str], bool, str]:
    members, closing, rest = text.partition("]")
    if not closing or not members or members[0] in "^!" or set(members) & set("[\\"):
        raise _NotTranslatableError
    return [f"[{members}]"], True, rest


def _parse_escape(text: str) -> tuple[list[str], bool, str]:
    if not text:
        raise _NotTranslatableError
    first, rest = text[0], text[1:]
    if first in _ANY_CLASSES:
        return ["[0-9]" if first == "d" else "?"], True, rest
    if first.isalnum():
        raise _NotTranslatableError  # \\b, \\1 and the like
    return [first], False, rest


def _check_count(globs: list[str]) -> list[str]:
    if len(globs) > MAX_GLOBS:
        raise _NotTranslatableError
    return globs
