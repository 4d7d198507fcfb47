"""What vLLM measured of the plans that run, beside what was predicted of them.

Only a server that runs by the very plan of the prediction can speak of it: while replicas of
another template serve in a placement, there is nothing to compare of that. What was known once is
kept while the plan is the same, so that a Prometheus that is down unsays nothing. Each placement is
read by itself, whatever others there are.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import inf

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.status import MeasuredStatus, PlacementStatus
from tonnage.catalog.catalog import Catalog
from tonnage.fit.corrections import CorrectionKey, Corrections, MemoryCorrection, Origin
from tonnage.fit.measured import key_of, measured_kv_bytes, missed_bytes
from tonnage.fit.model import IllegalParallelism, MemoryAccount
from tonnage.fit.options import engine_options
from tonnage.fit.question import FitQuestion, answer
from tonnage.placement.adjustments import MemoryShortfall, ShortfallKind
from tonnage.placement.messages import format_gib
from tonnage.placement.model import Option
from tonnage.placement.next_start import missed_kv_bytes
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.findings import Finding
from tonnage.reconcile.observe import Observation
from tonnage.render.names import placement_name
from tonnage.telemetry.cache import MeasuredCache

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Reading:
    """A KV cache of a placement as vLLM sized it, in the terms of the prediction: `measured_bytes`
    are those of one GPU, `question` is what was predicted from. `is_news`: it was measured just
    now."""

    placement: str
    pool: str
    cache: MeasuredCache
    measured_bytes: int
    account: MemoryAccount
    question: FitQuestion
    is_news: bool

    @property
    def is_accurate(self) -> bool:
        """Whether the prediction is as good as it claimed to be."""
        return self.bands_off <= 1

    @property
    def bands_off(self) -> float:
        """How far the prediction was off, in what it claimed to be off at most."""
        off = abs(self.account.kv_cache_bytes - self.measured_bytes)
        return off / self.account.band_bytes if self.account.band_bytes else inf if off else 0.0


@dataclass(frozen=True, slots=True)
class TaughtBy:
    """Whose start teaches something (namespace/name), and when."""

    name: str
    on: date


def take_reading(
    observation: Observation,
    accepted: Accepted,
    option: Option,
    target: ChildDeployment | None,
    image: str,
    catalog: Catalog,
) -> Reading | None:
    """What is known of the plan; None without a measurement of just this one.

    `target` is the Deployment that already is what was rendered, from this `image`.
    """
    placement = placement_name(option)
    settled = target is not None and target.settled
    fresh = observation.measured.get(placement) if settled else None
    before = observation.reported_placements
    cache = fresh or _known_before(before, option, image)
    if cache is None or cache.overridden:
        return None
    question = _question(option, accepted, catalog)
    measured = measured_kv_bytes(cache.kv_cache_tokens, question, catalog)
    return Reading(
        placement,
        option.pool.name,
        cache,
        measured,
        option.fit.account,
        question,
        is_news=fresh is not None,
    )


def measured_status(reading: Reading) -> MeasuredStatus:
    """The measurement as it stands beside the prediction."""
    return MeasuredStatus(
        kv_cache_tokens=reading.cache.kv_cache_tokens,
        kv_cache_gi_b=round(reading.measured_bytes / GIB, 1),
        blocks=reading.cache.blocks,
        block_tokens=reading.cache.block_tokens,
    )


def find_accuracy(readings: Sequence[Reading], *, spread: bool) -> Finding:
    """Whether the predictions held, by the one that is farthest off, which is named where replicas
    are `spread`. One that did not hold makes nothing less ready."""
    reading = max(readings, key=lambda one: one.bands_off)
    account, measured = reading.account, reading.measured_bytes
    where = f"on {reading.pool} (placement {reading.placement}) " if spread else ""
    told = (
        f"{where}a replica holds {reading.cache.kv_cache_tokens:,} tokens"
        f" ({format_gib(measured)} GiB of KV cache a GPU);"
        f" predicted were {account.kv_cache_tokens:,}"
        f" ({format_gib(account.kv_cache_bytes)} ± {format_gib(account.band_bytes)} GiB)"
    )
    if reading.is_accurate:
        return Finding(ConditionType.PREDICTION_ACCURATE, True, Reason.AS_PREDICTED, told)
    less = measured < account.kv_cache_bytes
    reason = Reason.MEASURED_LESS if less else Reason.MEASURED_MORE
    return Finding(ConditionType.PREDICTION_ACCURATE, False, reason, told)


def draw_lessons(
    readings: Iterable[Reading], known: Corrections, taught_by: TaughtBy, catalog: Catalog
) -> Iterator[MemoryCorrection]:
    """What is to be learnt: nothing where what is `known` already predicts what was measured, or
    where it cannot have been measured. Of placements with one key the one that takes most speaks:
    they have one teacher, and would correct each other for ever."""
    by_key: dict[CorrectionKey, tuple[int, Reading]] = {}
    for reading in readings:
        key, missed = key_of(reading.question, catalog), _missed(reading)
        if missed is not None and (key not in by_key or missed > by_key[key][0]):
            by_key[key] = missed, reading
    for key, (missed, reading) in by_key.items():
        if reading.is_news and not _is_known(reading, known, catalog):
            yield MemoryCorrection(key, missed, Origin.MEASUREMENT, taught_by.name, taught_by.on)


def _missed(reading: Reading) -> int | None:
    return missed_bytes(reading.account, reading.measured_bytes)


def _is_known(reading: Reading, known: Corrections, catalog: Catalog) -> bool:
    """Whether what was learnt by now predicts it, or nothing can."""
    now = answer(replace(reading.question, corrections=known), catalog)
    if isinstance(now, IllegalParallelism):
        return True
    return abs(now.account.kv_cache_bytes - reading.measured_bytes) <= now.account.band_bytes


def draw_lesson_of_failure(
    option: Option,
    shortfall: MemoryShortfall | None,
    accepted: Accepted,
    taught_by: TaughtBy,
    catalog: Catalog,
) -> MemoryCorrection | None:
    """What a start teaches that found too little memory for its KV cache: it took so much more, at
    least. Whatever else it lacked tells nothing of the calculation, and no start takes more than
    the device has: a log that says so is a user's own words."""
    if shortfall is None or shortfall.kind is not ShortfallKind.KV_CACHE:
        return None
    account = option.fit.account
    missed = account.correction_bytes + missed_kv_bytes(account, shortfall)
    if abs(missed) > account.device_bytes:
        return None
    key = key_of(_question(option, accepted, catalog), catalog)
    return MemoryCorrection(key, missed, Origin.FAILURE, taught_by.name, taught_by.on)


def _question(option: Option, accepted: Accepted, catalog: Catalog) -> FitQuestion:
    return FitQuestion(
        accepted.checkpoint,
        option.accelerator,
        option.fit.account.device_bytes,
        option.parallelism,
        option.adjustments.applied_to(engine_options(accepted.spec, catalog)),
    )


def _known_before(
    reported: Iterable[PlacementStatus], option: Option, image: str
) -> MeasuredCache | None:
    """What the status says of this very plan: the same split and image, and the same prediction."""
    account = option.fit.account
    for before in reported:
        same = (before.pool, before.accelerator, before.image, before.kv_cache_tokens) == (
            option.pool.name,
            option.accelerator.id,
            image,
            account.kv_cache_tokens,
        )
        split = (before.tensor_parallel_size, before.pipeline_parallel_size)
        if same and split == (option.parallelism.tensor, option.parallelism.pipeline):
            told = before.measured
            if told is not None:
                return MeasuredCache(told.kv_cache_tokens, told.blocks, told.block_tokens)
    return None
