"""Which of many alternatives to take under shared limits: an integer program, solved by HiGHS."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

TIME_LIMIT_SECONDS: Final = 20.0
"""For one goal; what is best by then is taken."""

_SLACK: Final = 1e-6
"""Relative room that a goal reached leaves for rounding when the next one is pursued."""

Terms = Mapping[int, float]
"""Weights by the number of the alternative; all others weigh nothing."""


class SolverMissingError(Exception):
    """The solver is not installed."""


class NotSolvedError(Exception):
    """No solution was found within the time limit."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The alternatives taken weigh at most so much together."""

    terms: Terms
    at_most: float


@dataclass(frozen=True, slots=True)
class Solution:
    """The alternatives taken. `bounds` are, goal by goal, what no solution can be below, given that
    the goals before it are reached as well as here."""

    taken: frozenset[int]
    bounds: tuple[float, ...]


def minimise(
    alternatives: int,
    limits: Sequence[Limit],
    goals: Sequence[Terms],
    time_limit_seconds: float = TIME_LIMIT_SECONDS,
) -> Solution:
    """Take alternatives, each once or not at all, so that the goals are least, the first first.

    Each goal reached is a limit for those after it. Raises SolverMissingError, NotSolvedError.
    """
    taken: frozenset[int] = frozenset()
    bounds: list[float] = []
    held = list(limits)
    for goal in goals:
        taken, bound = _solve(alternatives, held, goal, time_limit_seconds)
        reached = sum(goal.get(number, 0.0) for number in taken)
        held.append(Limit(goal, reached + _SLACK * max(1.0, abs(reached))))
        bounds.append(bound)
    return Solution(taken, tuple(bounds))


def _solve(
    alternatives: int, limits: Sequence[Limit], goal: Terms, time_limit_seconds: float
) -> tuple[frozenset[int], float]:
    if not alternatives:
        return frozenset(), 0.0
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - an extra
        from scipy.sparse import csr_array  # noqa: PLC0415 - an extra
    except ImportError:
        told = "the solver is not installed; run: pip install 'tonnage[optimize]'"
        raise SolverMissingError(told) from None
    weights = [weight for limit in limits for weight in limit.terms.values()]
    rows = [row for row, limit in enumerate(limits) for _ in limit.terms]
    columns = [column for limit in limits for column in limit.terms]
    matrix: Any = csr_array((weights, (rows, columns)), shape=(len(limits), alternatives))
    found = milp(
        [goal.get(number, 0.0) for number in range(alternatives)],
        integrality=[1] * alternatives,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, ub=[limit.at_most for limit in limits]),
        options={"time_limit": time_limit_seconds, "mip_rel_gap": 0.0},
    )
    if found.x is None:
        raise NotSolvedError(f"no assignment found within {time_limit_seconds:g} s")
    taken = frozenset(number for number, part in enumerate(found.x) if part > 0.5)
    return taken, float(found.mip_dual_bound)
