"""Regular expressions of strangers, rewritten as shell patterns instead of being run.

Checkpoints name layers by expressions such as `.*self_attn\\.(q|k|v)_proj$`. A regular expression
can take any time to match; a shell pattern cannot. What occurs in practice has an equivalent: each
alternative becomes a pattern of its own, repetition of a character class becomes `*`.
"""

from typing import Final

MAX_GLOBS: Final = 256
"""Most patterns one expression may stand for; published ones list up to 100 layer numbers."""

MAX_GROUPS: Final = 32
"""Most groups of one expression; they nest, and so do the calls that read them."""

_ANY_CLASSES: Final = frozenset("dwDWsS")
_REPEATS: Final = frozenset("*+?")


def regex_to_globs(expression: str) -> tuple[str, ...] | None:
    """The shell patterns that match the names `re.match` would, None when there are none such.

    Where an alternative has no `$`, its pattern ends with `*`, as re.match does not look there.
    """
    if expression.count("(") > MAX_GROUPS:
        return None
    try:
        globs, rest = _alternatives(expression.removeprefix("^"))
    except _NotTranslatableError:
        return None
    patterns = tuple(glob[:-1] if glob.endswith("$") else f"{glob}*" for glob in globs)
    return None if rest or any("$" in pattern for pattern in patterns) else patterns


class _NotTranslatableError(Exception):
    """The expression has a part without equivalent, or stands for too many patterns."""


def _alternatives(text: str) -> tuple[list[str], str]:
    """The patterns of `a|b|c` up to a closing parenthesis, and what follows from it on."""
    found: list[str] = []
    while True:
        globs, text = _sequence(text)
        found += globs
        if not text.startswith("|"):
            return _bounded(found), text
        text = text[1:]


def _sequence(text: str) -> tuple[list[str], str]:
    globs = [""]
    while text and text[0] not in "|)":
        atoms, repeatable, text = _atom(text)
        if text[:1] in _REPEATS:
            atoms = _repeated(atoms, repeatable, text[0])
            text = text[1:].removeprefix("?")  # lazy or not, the same names match
        globs = _bounded([glob + atom for glob in globs for atom in atoms])
    return globs, text


def _repeated(atoms: list[str], repeatable: bool, sign: str) -> list[str]:
    if sign == "?":
        return ["", *atoms]
    if not repeatable:
        raise _NotTranslatableError
    return ["*"] if sign == "*" else ["?*"]


def _atom(text: str) -> tuple[list[str], bool, str]:
    """The patterns of one character, class or group, whether it may repeat, and the rest."""
    first, rest = text[0], text[1:]
    if first == "(":
        return _group(rest)
    if first == "[":
        return _character_class(rest)
    if first == "\\":
        return _escape(rest)
    if first == ".":
        return ["."], True, rest  # in names of layers, which it almost always means as it stands
    if first in "{}*+?^":
        raise _NotTranslatableError
    return [first], False, rest


def _group(text: str) -> tuple[list[str], bool, str]:
    if text.startswith("?") and not text.startswith("?:"):
        raise _NotTranslatableError  # looks ahead or behind
    globs, rest = _alternatives(text.removeprefix("?:"))
    if not rest.startswith(")"):
        raise _NotTranslatableError
    return globs, False, rest[1:]


def _character_class(text: str) -> tuple[list[str], bool, str]:
    inside, closed, rest = text.partition("]")
    if not closed or not inside or inside[0] in "^!" or set(inside) & set("[\\"):
        raise _NotTranslatableError
    return [f"[{inside}]"], True, rest


def _escape(text: str) -> tuple[list[str], bool, str]:
    if not text:
        raise _NotTranslatableError
    first, rest = text[0], text[1:]
    if first in _ANY_CLASSES:
        return ["[0-9]" if first == "d" else "?"], True, rest
    if first.isalnum():
        raise _NotTranslatableError  # \\b, \\1 and the like
    return [first], False, rest


def _bounded(globs: list[str]) -> list[str]:
    if len(globs) > MAX_GLOBS:
        raise _NotTranslatableError
    return globs
