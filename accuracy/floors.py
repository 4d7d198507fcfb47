"""What every figure has to reach at least: it was reached once and may only get better."""

from pathlib import Path
from typing import Final

import yaml

from accuracy.figures import FIGURES

PATH: Final = Path(__file__).parent / "floors.yaml"

_HEADER: Final = """\
# What each figure of accuracy/figures.py has reached; `make test` fails when one gets worse.
# `make accuracy RAISE=1` writes better ones, never worse ones.
"""
_DIGITS: Final = 5


def read_floors() -> dict[str, float]:
    """The floors by name of the figure."""
    floors: dict[str, float] = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return floors


def raise_floors(measured: dict[str, float | None]) -> None:
    """Write the better of what stands there and what was measured."""
    floors = read_floors() if PATH.exists() else {}
    for figure in FIGURES:
        value = measured[figure.name]
        if value is not None:
            worse = _round_away(value, figure.at_most)
            floors[figure.name] = figure.better(floors.get(figure.name, worse), worse)
    ordered = {figure.name: floors[figure.name] for figure in FIGURES if figure.name in floors}
    PATH.write_text(_HEADER + yaml.safe_dump(ordered, sort_keys=False), encoding="utf-8")


def _round_away(value: float, at_most: bool) -> float:
    """A bound of a few digits that the value itself keeps."""
    step: float = 10.0**-_DIGITS
    rounded = round(value, _DIGITS)
    if at_most and rounded < value:
        return round(rounded + step, _DIGITS)
    if not at_most and rounded > value:
        return round(rounded - step, _DIGITS)
    return rounded
