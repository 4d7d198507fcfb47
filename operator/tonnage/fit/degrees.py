"""Figures that are known for some numbers of GPUs."""

from collections.abc import Mapping


def at_degree(table: Mapping[int, int], degree: int) -> int:
    """The entry of the smallest degree that is not below `degree`, else of the largest."""
    above = [known for known in table if known >= degree]
    return table[min(above) if above else max(table)]
