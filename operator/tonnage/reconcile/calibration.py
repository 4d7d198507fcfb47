"""Compare what engines measured of running plans with what was predicted of them.

Only a server that runs by the very plan of the prediction can be compared with it: while replicas
of another template serve in a placement, there is no comparison. A known measurement is kept while
the plan is the same, so that a Prometheus that is down clears no status. Each placement is read
independently of the others.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.status import MeasuredStatus, PlacementStatus
from tonnage.catalog.catalog import Catalog
from tonnage.engines.metrics import MeasuredCache
from tonnage.fit.calibration.corrections import CorrectionKey, Corrections, MemoryCorrection, Origin
from tonnage.fit.engines.registry import memory_for, options_for
from tonnage.fit.messages import format_gib
from tonnage.fit.model import IllegalParallelism, MemoryAccount
from tonnage.fit.options import for_parallelism
from tonnage.fit.questions.measured import key_of, missed_bytes
from tonnage.fit.questions.question import FitQuestion, answer
from tonnage.placement.adjustments import MemoryShortfall, ShortfallKind
from tonnage.placement.model import Option
from tonnage.placement.oom_fallback.next_start import missed_kv_bytes
from tonnage.placement.report import read_parallelism
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.findings import Finding
from tonnage.reconcile.scheduling.context import ReconcileContext

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Reading:
    """A KV cache of a placement as the engine sized it, in the terms of the prediction:
    `measured_bytes` are those of one GPU, `question` is the input of the prediction. `is_news`: it
    was measured just now."""

    placement: str
    pool: str
    cache: MeasuredCache
    measured_bytes: int
    account: MemoryAccount
    question: FitQuestion
    is_news: bool

    @property
    def is_accurate(self) -> bool:
        """Whether the prediction is within the error that it claimed."""
        return self.bands_off <= 1

    @property
    def bands_off(self) -> float:
        """The error of the prediction, in multiples of the largest error that it claimed."""
        error_bytes = abs(self.account.kv_cache_bytes - self.measured_bytes)
        band_bytes = self.account.band_bytes
        return error_bytes / band_bytes if band_bytes else inf if error_bytes else 0.0


def take_reading(
    context: ReconcileContext, option: Option, target: ChildDeployment | None, image: str
) -> Reading | None:
    """The measurement of the plan; None without a measurement of exactly this plan.

    `target` is the Deployment that already matches what was rendered, from this `image`.
    """
    observation, placement = context.observation, option.placement_name
    is_settled = target is not None and target.settled
    new_cache = observation.measured.get(placement) if is_settled else None
    reported = observation.reported_placements
    cache = new_cache or _known_before(reported, option, image)
    if cache is None or cache.overridden:
        return None
    question = _question(context, option)
    of_rank = cache.kv_cache_tokens // option.parallelism.data
    measured = question.memory.measured_kv_bytes(of_rank, question, context.catalog)
    return Reading(
        placement,
        option.pool.name,
        cache,
        measured,
        option.fit.account,
        question,
        is_news=new_cache is not None,
    )


def measured_status(reading: Reading) -> MeasuredStatus:
    """The measurement as the status has it, next to the prediction."""
    return MeasuredStatus(
        kv_cache_tokens=reading.cache.kv_cache_tokens,
        kv_cache_gi_b=round(reading.measured_bytes / GIB, 1),
        blocks=reading.cache.blocks,
        block_tokens=reading.cache.block_tokens,
    )


def find_accuracy(readings: Sequence[Reading], *, spread: bool) -> Finding:
    """Whether the predictions held, by the one that is farthest off, which is named where replicas
    are `spread`. A wrong prediction makes no object less ready."""
    reading = max(readings, key=lambda one: one.bands_off)
    account, measured = reading.account, reading.measured_bytes
    where = f"on {reading.pool} (placement {reading.placement}) " if spread else ""
    message = (
        f"{where}a replica holds {reading.cache.kv_cache_tokens:,} tokens"
        f" ({format_gib(measured)} GiB of KV cache a GPU);"
        f" the prediction was {account.kv_cache_tokens * reading.question.parallelism.data:,}"
        f" ({format_gib(account.kv_cache_bytes)} ± {format_gib(account.band_bytes)} GiB)"
    )
    if reading.is_accurate:
        return Finding(ConditionType.PREDICTION_ACCURATE, True, Reason.AS_PREDICTED, message)
    is_less = measured < account.kv_cache_bytes
    reason = Reason.MEASURED_LESS if is_less else Reason.MEASURED_MORE
    return Finding(ConditionType.PREDICTION_ACCURATE, False, reason, message)


def make_corrections(
    context: ReconcileContext, readings: Iterable[Reading]
) -> Iterator[MemoryCorrection]:
    """Memory corrections from readings: none where the known ones already predict what was
    measured, or where it cannot have been measured. Of placements with one key the one that takes
    most memory counts: two sources of one key would correct each other for ever."""
    catalog = context.catalog
    by_key: dict[CorrectionKey, tuple[int, Reading]] = {}
    for reading in readings:
        question = reading.question
        if not question.memory.is_corrected_by(question.options, Origin.MEASUREMENT):
            continue
        key = key_of(question, catalog)
        extra_bytes = missed_bytes(reading.account, reading.measured_bytes)
        if extra_bytes is not None and (key not in by_key or extra_bytes > by_key[key][0]):
            by_key[key] = extra_bytes, reading
    for key, (extra_bytes, reading) in by_key.items():
        if reading.is_news and not _is_known(reading, context.corrections, catalog):
            yield _correction(context, key, extra_bytes, Origin.MEASUREMENT)


def _is_known(reading: Reading, known: Corrections, catalog: Catalog) -> bool:
    """Whether the corrections known by now predict it, or no prediction is possible."""
    prediction = answer(replace(reading.question, corrections=known), catalog)
    if isinstance(prediction, IllegalParallelism):
        return True
    account = prediction.account
    return abs(account.kv_cache_bytes - reading.measured_bytes) <= account.band_bytes


def make_correction_from_failure(
    context: ReconcileContext, option: Option, shortfall: MemoryShortfall | None
) -> MemoryCorrection | None:
    """The correction from a start that had too little memory for its KV cache: the start took at
    least the shortfall more. Other shortfalls say nothing of the calculation, and a shortfall above
    the device's memory is ignored: such a log line is a user's own text."""
    if shortfall is None or shortfall.kind is not ShortfallKind.KV_CACHE:
        return None
    question = _question(context, option)
    if not question.memory.is_corrected_by(question.options, Origin.FAILURE):
        return None
    account = option.fit.account
    extra_bytes = account.correction_bytes + missed_kv_bytes(account, shortfall)
    if abs(extra_bytes) > account.device_bytes:
        return None
    key = key_of(question, context.catalog)
    return _correction(context, key, extra_bytes, Origin.FAILURE)


def _correction(
    context: ReconcileContext, key: CorrectionKey, extra_bytes: int, origin: Origin
) -> MemoryCorrection:
    source, date = str(context.observation.key), context.now.date()
    return MemoryCorrection(key, extra_bytes, origin, source, date)


def _question(context: ReconcileContext, option: Option) -> FitQuestion:
    spec = context.spec_on(option.engine)
    return FitQuestion(
        context.accepted.checkpoint,
        option.accelerator,
        option.fit.account.device_bytes,
        option.parallelism,
        for_parallelism(
            option.adjustments.applied_to(options_for(spec, context.catalog)),
            option.parallelism,
        ),
        memory=memory_for(spec),
    )


def _known_before(
    reported: Iterable[PlacementStatus], option: Option, image: str
) -> MeasuredCache | None:
    """The measurement that the status has of this very plan: the same parallelism and image, and
    the same prediction."""
    for placement in reported:
        is_same = (
            placement.pool,
            placement.accelerator,
            placement.image,
            placement.kv_cache_tokens,
        ) == (option.pool.name, option.accelerator.id, image, option.kv_cache_tokens)
        if is_same and read_parallelism(placement) == option.parallelism:
            measured = placement.measured
            if measured is not None:
                return MeasuredCache(
                    measured.kv_cache_tokens, measured.blocks, measured.block_tokens
                )
    return None
