"""The names that users give accelerators: ids, families, vendors and product names, in any case.

`h100-sxm-80gb` is an id. A family is the start of ids (`h100`, `h100-pcie`), also without the form
factor (`a100-80gb`). Vendors (`AMD`) and brands (`Radeon`) name all of their cards, and a product
name (`NVIDIA H100 SXM5 80GB`) one of them. Nothing is guessed: `l40` is not `l40s`.
"""

import difflib
import re
from collections.abc import Iterable
from typing import Final

from tonnage.catalog.model import Accelerator

FORM_FACTORS: Final = frozenset({"sxm", "pcie", "nvl"})
"""Parts of an id that a name may leave out: the forms in which the same chip is sold."""

_WORD: Final = re.compile(r"[a-z0-9]+")
_MAX_NAME_CHARS: Final = 64
_MAX_SUGGESTIONS: Final = 4
_NEAR: Final = 0.6
"""Least similarity of a suggestion (difflib: 1 is equal)."""


def is_named(accelerator: Accelerator, name: str) -> bool:
    """Whether a user who writes `name` means this accelerator, perhaps among others."""
    if name == accelerator.id:
        return True
    words = _WORD.findall(name[:_MAX_NAME_CHARS].lower())
    product = _WORD.findall(accelerator.name.lower())
    parts = accelerator.id.split("-")
    if words and "".join(words) in ("".join(parts), "".join(product)):
        return True
    named = [word for word in words if word in parts]
    others = {word for word in words if word not in parts}
    if not named:
        return bool(others) and others <= {accelerator.vendor.value, product[0]}
    return others <= {accelerator.vendor.value, *product} and _is_family(named, parts)


def suggest_names(name: str, accelerators: Iterable[Accelerator]) -> tuple[str, ...]:
    """The ids nearest to a name that is none, by their families and by themselves."""
    ids: dict[str, list[str]] = {}
    for accelerator in accelerators:
        for key in {accelerator.id, accelerator.id.partition("-")[0]}:
            ids.setdefault(key, []).append(accelerator.id)
    written = "-".join(_WORD.findall(name[:_MAX_NAME_CHARS].lower()))
    near = difflib.get_close_matches(written, sorted(ids), n=_MAX_SUGGESTIONS, cutoff=_NEAR)
    suggestions = dict.fromkeys(one for key in near for one in sorted(ids[key]))
    return tuple(suggestions)[:_MAX_SUGGESTIONS]


def _is_family(named: list[str], parts: list[str]) -> bool:
    """Whether `named` are the first parts of an id in their order, without form factors."""
    if named[0] != parts[0]:
        return False
    rest = iter(parts)
    for word in named:
        for part in rest:
            if part == word:
                break
            if part not in FORM_FACTORS:
                return False
        else:
            return False
    return True
