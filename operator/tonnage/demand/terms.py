"""The scaling section of a spec in numbers."""

from dataclasses import dataclass
from datetime import timedelta

from tonnage.api.parse import parse_duration
from tonnage.api.scaling import Scaling
from tonnage.demand.conventions import Conventions, load_conventions

_LONGEST_SECONDS = 7 * 24 * 3600.0
"""A longer window is as good as never, and `datetime` cannot subtract the longest duration."""


@dataclass(frozen=True, slots=True)
class ScalingTerms:
    """The targets of the spec (latencies in seconds), the bounds, and the stabilization windows.

    `zero_after`: time without any request before the last replica is removed; None: never.
    """

    waiting_requests: int | None
    kv_cache_usage: float | None
    running_requests: int | None
    time_to_first_token: float | None
    time_per_output_token: float | None
    min_replicas: int
    max_replicas: int
    up_window: timedelta
    down_window: timedelta
    zero_after: timedelta | None
    conventions: Conventions

    @property
    def fewest(self) -> int:
        """The lower bound: 0 with scale to zero, else `min_replicas`."""
        return self.min_replicas if self.zero_after is None else 0

    def within(self, replicas: int) -> int:
        """Clamp `replicas` to the bounds; 0 stays 0 if scale to zero allows it."""
        if replicas <= 0 and self.fewest == 0:
            return 0
        return max(self.min_replicas, min(self.max_replicas, replicas))


def terms_of(scaling: Scaling) -> ScalingTerms | None:
    """The terms of a spec; None if it sets no targets."""
    targets = scaling.targets
    if targets is None:
        return None
    conventions = load_conventions()
    up, down, to_zero = scaling.scale_up, scaling.scale_down, scaling.scale_to_zero
    return ScalingTerms(
        waiting_requests=targets.waiting_requests,
        kv_cache_usage=targets.kv_cache_usage,
        running_requests=targets.running_requests,
        time_to_first_token=_seconds(targets.time_to_first_token),
        time_per_output_token=_seconds(targets.time_per_output_token),
        min_replicas=scaling.min_replicas,
        max_replicas=scaling.max_replicas,
        up_window=_window(
            up.stabilization_window if up else None, conventions.scale_up_window_seconds
        ),
        down_window=_window(
            down.stabilization_window if down else None, conventions.scale_down_window_seconds
        ),
        zero_after=(
            _window(to_zero.after, conventions.scale_to_zero_after_seconds) if to_zero else None
        ),
        conventions=conventions,
    )


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else parse_duration(duration)


def _window(duration: str | None, default_seconds: float) -> timedelta:
    seconds = default_seconds if duration is None else parse_duration(duration)
    return timedelta(seconds=min(seconds, _LONGEST_SECONDS))
