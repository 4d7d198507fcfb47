"""The price and the estimated speed of one replica at full load."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Price
from tonnage.catalog.prices import cost_per_million_tokens, format_money
from tonnage.cli.fit.engine import Engine, engine_of
from tonnage.cli.fit.flags import Workload
from tonnage.cli.fit.judgement import Judgement, Outcome
from tonnage.throughput.estimate import estimate_throughput
from tonnage.throughput.model import Demand, ThroughputEstimate


@dataclass(frozen=True, slots=True)
class ReplicaCost:
    """One replica on `gpus` GPUs, each at the list `price` (None: not known).

    The estimate is for the concurrent requests of the workload, else for as many as the KV cache
    and vLLM's batch hold; None where the catalogue lacks figures of the device.
    """

    gpus: int
    price: Price | None
    estimate: ThroughputEstimate | None

    @property
    def per_hour(self) -> Decimal | None:
        """Dollars per hour."""
        return None if self.price is None else self.price.usd_per_gpu_hour * self.gpus

    @property
    def per_million_tokens(self) -> Decimal | None:
        """Dollars per million generated tokens."""
        if self.per_hour is None or self.estimate is None:
            return None
        return cost_per_million_tokens(self.per_hour, self.estimate.tokens_per_second)


def compute_cost(
    judged: Judgement, workload: Workload, max_num_seqs: int, nodes: int, catalog: Catalog
) -> ReplicaCost | None:
    """The cost of the judged layout, of SGLang and over several nodes without a speed; None if it
    does not fit."""
    question, account = judged.question, judged.account
    if judged.outcome is not Outcome.FITS or account is None:
        return None
    if nodes > 1 or engine_of(question) is Engine.SGLANG:
        return ReplicaCost(question.parallelism.gpus, question.accelerator.price, None)
    concurrency = workload.concurrency or max_num_seqs
    estimate = estimate_throughput(
        question.checkpoint,
        question.accelerator,
        question.parallelism,
        question.options,
        account,
        Demand(workload.input_tokens, workload.output_tokens, concurrency),
        catalog,
    )
    return ReplicaCost(question.parallelism.gpus, question.accelerator.price, estimate)


def cost_data(cost: ReplicaCost) -> dict[str, Any]:
    """The cost as JSON data; a field whose value is not known is null."""
    estimate, price = cost.estimate, cost.price
    per_hour, per_million_tokens = cost.per_hour, cost.per_million_tokens
    return {
        "gpus": cost.gpus,
        "costPerHour": None if per_hour is None else format_money(per_hour),
        "priceSource": None if price is None else f"list price of {price.date}",
        "tokensPerSecond": None if estimate is None else round(estimate.tokens_per_second),
        "estimatedRequests": None if estimate is None else estimate.batch,
        "estimateBandPercent": None if estimate is None else round(estimate.band * 100),
        "costPerMillionTokens": (
            None if per_million_tokens is None else format_money(per_million_tokens)
        ),
    }
