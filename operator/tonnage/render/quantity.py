"""Quantities as the API server writes them.

The server rewrites what it is given ("1024Mi" is read back as "1Gi"). Rendered objects carry the
form it would choose, so that what was applied and what is read back compare as equal.
"""

import math
import re
from fractions import Fraction
from typing import Final

GIB: Final = 2**30

_FORM: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_BINARY_BASE: Final = 1024
_DECIMAL_BASE: Final = 1000
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = ("m", "", "k", "M", "G", "T", "P", "E")
_THOUSANDTH: Final = Fraction(1, _DECIMAL_BASE)


def gibibytes(count: int) -> str:
    """So many GiB (at least 1) as a quantity."""
    return _binary(count * GIB)


def amount(text: str) -> Fraction:
    """The number behind `text`, a quantity as api.pod.Quantity admits it."""
    number, suffix = _split(text)
    if suffix in _BINARY:
        return number * Fraction(_BINARY_BASE) ** _BINARY.index(suffix)
    return number * _THOUSANDTH * Fraction(_DECIMAL_BASE) ** _DECIMAL.index(suffix)


def canonical(text: str) -> str:
    """The form that the API server gives to `text`, a quantity as api.pod.Quantity admits it.

    The rules are those of Go's resource.Quantity: the largest suffix that leaves no fraction; a
    binary suffix stays binary unless that leaves a fraction or less than 1024. Resources are
    rounded up to thousandths (pkg/apis/core/v1/defaults.go: SetDefaults_ResourceList).
    """
    found, (_, suffix) = amount(text), _split(text)
    whole = found.denominator == 1 and found >= _BINARY_BASE
    return _binary(int(found)) if suffix in _BINARY[1:] and whole else _decimal(found)


def _split(text: str) -> tuple[Fraction, str]:
    match = _FORM.fullmatch(text)
    assert match is not None, f"{text!r} has passed the schema"
    return Fraction(match[1]), match[2] or ""


def _binary(whole: int) -> str:
    return _with_suffix(whole, _BINARY_BASE, _BINARY)


def _decimal(number: Fraction) -> str:
    thousandths = math.ceil(number / _THOUSANDTH)
    return _with_suffix(thousandths, _DECIMAL_BASE, _DECIMAL) if thousandths else "0"


def _with_suffix(whole: int, base: int, suffixes: tuple[str, ...]) -> str:
    power = 0
    while whole % base == 0 and power < len(suffixes) - 1:
        whole //= base
        power += 1
    return f"{whole}{suffixes[power]}"
