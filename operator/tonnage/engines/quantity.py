"""Quantities, and other parts of a spec, as the API server writes them.

The server rewrites quantities ("1024Mi" becomes "1Gi"). Rendered objects have the form that the
server would choose, so that an applied object and the stored one compare as equal.
"""

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from tonnage.api.schema import ApiModel

GIB: Final = 2**30

_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_SIZE: Final = re.compile(r"[1-9][0-9]{0,8}")
_ANY_QUANTITY: Final = re.compile(
    r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?"
)
_BINARY_BASE: Final = 1024
_DECIMAL_BASE: Final = 1000
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = ("m", "", "k", "M", "G", "T", "P", "E")
_THOUSANDTH: Final = Fraction(1, _DECIMAL_BASE)

_CACHED_QUANTITIES: Final = 1024
"""Pods of all objects request much the same quantities, and each plan renders them."""


def read_size(text: str) -> int:
    """A size in an argument of an engine, 1 for text that is none: a user who may create pods may
    write any argument, and Python raises for thousands of digits."""
    return int(text) if _SIZE.fullmatch(text) else 1


def gibibytes(count: int) -> str:
    """A number of GiB (at least 1) as a quantity."""
    return _binary(count * GIB)


def is_quantity(value: object) -> bool:
    """Whether the API server takes the value for a quantity of zero or more (apimachinery
    pkg/api/resource). `read_quantity` knows the usual ones."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    return _ANY_QUANTITY.fullmatch(str(value)) is not None


def read_quantity(value: object) -> str | None:
    """The text of a quantity that api.pod.Quantity allows, None for another value."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if _QUANTITY.fullmatch(text) else None


def parse_quantity(text: str) -> Fraction:
    """The value of `text`, a quantity that api.pod.Quantity allows."""
    number, suffix = _split(text)
    if suffix in _BINARY:
        return number * Fraction(_BINARY_BASE) ** _BINARY.index(suffix)
    return number * _THOUSANDTH * Fraction(_DECIMAL_BASE) ** _DECIMAL.index(suffix)


@lru_cache(_CACHED_QUANTITIES)
def format_canonical(text: str) -> str:
    """The form in which the API server writes `text`, a quantity that api.pod.Quantity allows.

    The rules are those of Go's resource.Quantity: the largest suffix that leaves no fraction; a
    binary suffix stays binary unless that leaves a fraction or less than 1024. Resources are
    rounded up to thousandths (pkg/apis/core/v1/defaults.go: SetDefaults_ResourceList).
    """
    value, (_, suffix) = parse_quantity(text), _split(text)
    stays_binary = value.denominator == 1 and value >= _BINARY_BASE
    return _binary(int(value)) if suffix in _BINARY[1:] and stays_binary else _decimal(value)


def _split(text: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text)
    assert match is not None, f"{text!r} is no quantity of the schema"
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


def render_stored(part: ApiModel) -> dict[str, Any]:
    """Render without the zero values that the API server drops: false and empty strings. With them
    an applied object and the stored one would differ for ever."""
    stored: dict[str, Any] = _drop_zero_values(part.to_dict())
    return stored


def _drop_zero_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _drop_zero_values(inner)
            for key, inner in value.items()
            if inner not in ("", False)
        }
    return value
