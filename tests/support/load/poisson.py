"""How many requests come in a span of time when they come at random."""

import math
import random
from typing import Final

_MANY: Final = 30.0
"""From here on the normal distribution is near enough, and far cheaper."""


def poisson(chance: random.Random, mean: float) -> int:
    """A number with the Poisson distribution of that mean."""
    if mean > _MANY:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    least, product, number = math.exp(-mean), chance.random(), 0
    while product > least:
        product *= chance.random()
        number += 1
    return number
