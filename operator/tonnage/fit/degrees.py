"""Figures that the catalogue has for some numbers of GPUs."""

from collections.abc import Mapping


def lookup_by_gpus(table: Mapping[int, int], gpus: int) -> int:
    """The entry of the smallest number of GPUs that is at least `gpus`, else of the largest."""
    enough = [number for number in table if number >= gpus]
    return table[min(enough) if enough else max(table)]
