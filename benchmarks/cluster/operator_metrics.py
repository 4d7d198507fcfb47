"""What the operator says of its own work on /metrics. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from e2e.harness.failure import HarnessError


@dataclass(frozen=True, slots=True)
class OperatorCounters:
    """Since the start of the process: reconciles of all results, the seconds that they took, and
    how often and how long (`controller_runtime_*`); `last_resync` is Unix time, None before the
    first resync."""

    reconciles: int
    timed_reconciles: int
    reconcile_seconds: float
    last_resync: float | None

    @property
    def seconds_per_reconcile(self) -> float | None:
        """Mean duration of a reconcile, None where there was none."""
        return self.reconcile_seconds / self.timed_reconciles if self.timed_reconciles else None

    def since(self, earlier: OperatorCounters) -> OperatorCounters:
        """What was added after an earlier reading; `last_resync` is that of a resync that came
        after it, if any."""
        is_newer = self.last_resync != earlier.last_resync
        return OperatorCounters(
            self.reconciles - earlier.reconciles,
            self.timed_reconciles - earlier.timed_reconciles,
            self.reconcile_seconds - earlier.reconcile_seconds,
            self.last_resync if is_newer else None,
        )


def parse_counters(text: str) -> OperatorCounters:
    """Read the text of /metrics. Raises HarnessError where a counter is missing."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value

    def total(name: str) -> float:
        if name not in sums:
            raise HarnessError(f"/metrics has no {name}; the benchmark cannot count reconciles")
        return sums[name]

    return OperatorCounters(
        round(total("controller_runtime_reconcile_total")),
        round(total("controller_runtime_reconcile_time_seconds_count")),
        total("controller_runtime_reconcile_time_seconds_sum"),
        sums.get("tonnage_last_resync_timestamp_seconds"),
    )
