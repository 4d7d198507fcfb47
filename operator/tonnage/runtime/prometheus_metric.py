"""What became of the questions to Prometheus, as a metric; there are none where none is asked."""

from prometheus_client import CollectorRegistry, Counter

from tonnage.telemetry.prometheus import QueryOutcome


class PrometheusMetrics:
    """Counts each question by its end."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._questions = Counter(
            "tonnage_prometheus_questions",
            "Questions to Prometheus by outcome; held_back were not asked, as others were in vain.",
            ["outcome"],
            registry=registry,
        )

    def asked(self, outcome: QueryOutcome) -> None:
        """One question has ended so."""
        self._questions.labels(outcome).inc()
