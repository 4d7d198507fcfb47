"""Chooses among alternatives under shared limits: an integer program, solved by HiGHS."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

TIME_LIMIT_SECONDS: Final = 20.0
"""For one goal; the best solution by then is used."""

_SLACK: Final = 1e-6
"""Relative tolerance of a reached goal, for rounding, while the next one is minimised."""

Weights = Mapping[int, float]
"""Weights by the number of the alternative; all others have weight 0."""


class SolverMissingError(Exception):
    """The solver is not installed."""


class NotSolvedError(Exception):
    """No solution was found within the time limit."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The total weight of the taken alternatives is at most this."""

    weights: Weights
    at_most: float


@dataclass(frozen=True, slots=True)
class Solution:
    """The alternatives taken. `bounds` are lower bounds of each goal, for solutions that reach the
    goals before it as well as this one."""

    taken: frozenset[int]
    bounds: tuple[float, ...]


def minimise(
    alternatives: int,
    limits: Sequence[Limit],
    goals: Sequence[Weights],
    time_limit_seconds: float = TIME_LIMIT_SECONDS,
) -> Solution:
    """Take alternatives, each once or not at all, so that the goals are minimal, in their order.

    Each goal reached is a limit for those after it. Raises SolverMissingError, NotSolvedError.
    """
    taken: frozenset[int] = frozenset()
    bounds: list[float] = []
    all_limits = list(limits)
    for goal in goals:
        taken, bound = _solve(alternatives, all_limits, goal, time_limit_seconds)
        reached = sum(goal.get(number, 0.0) for number in taken)
        all_limits.append(Limit(goal, reached + _SLACK * max(1.0, abs(reached))))
        bounds.append(bound)
    return Solution(taken, tuple(bounds))


def _solve(
    alternatives: int, limits: Sequence[Limit], goal: Weights, time_limit_seconds: float
) -> tuple[frozenset[int], float]:
    if not alternatives:
        return frozenset(), 0.0
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - an extra
        from scipy.sparse import csr_array  # noqa: PLC0415 - an extra
    except ImportError:
        message = "the solver is not installed; run: pip install 'tonnage[optimize]'"
        raise SolverMissingError(message) from None
    weights = [weight for limit in limits for weight in limit.weights.values()]
    rows = [row for row, limit in enumerate(limits) for _ in limit.weights]
    columns = [column for limit in limits for column in limit.weights]
    matrix: Any = csr_array((weights, (rows, columns)), shape=(len(limits), alternatives))
    solution = milp(
        [goal.get(number, 0.0) for number in range(alternatives)],
        integrality=[1] * alternatives,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, ub=[limit.at_most for limit in limits]),
        options={"time_limit": time_limit_seconds, "mip_rel_gap": 0.0},
    )
    if solution.x is None:
        raise NotSolvedError(f"no assignment found within {time_limit_seconds:g} s")
    taken = frozenset(number for number, value in enumerate(solution.x) if value > 0.5)
    return taken, float(solution.mip_dual_bound)
