"""How long a fit takes, in seconds of the processor: printed, and never asserted."""

import json
import statistics
import time
from dataclasses import dataclass
from itertools import cycle, islice, product

from accuracy.records import models
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint, UnsupportedArchitectureError
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import EngineOptions, Parallelism

_RUNS = 2000
_COMBINATIONS = 10_000
_DEGREES = (1, 2, 4, 8)
_LENGTH = 8192


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one warm fit, of one with nothing cached, and of many combinations of a model."""

    warm_seconds: float
    cold_seconds: float
    combinations: int
    combinations_seconds: float


def time_fits() -> Timing:
    """Time the calculation on all models of the records."""
    checkpoints = _checkpoints()
    return Timing(
        warm_seconds=_warm(checkpoints),
        cold_seconds=_cold(),
        combinations=_COMBINATIONS,
        combinations_seconds=_combinations(checkpoints),
    )


def _checkpoints() -> list[Checkpoint]:
    checkpoints = []
    for model in models().values():
        try:
            checkpoints.append(Checkpoint(parse_config(model.config)))
        except UnsupportedArchitectureError:
            continue
    return checkpoints


def _options(length: int = _LENGTH) -> EngineOptions:
    return EngineOptions(f"v{load_catalog().default_release}", length)


def _warm(checkpoints: list[Checkpoint]) -> float:
    """The median over models, each asked before."""
    catalog = load_catalog()
    card, options = catalog.accelerator("mi300x"), _options()
    taken: list[float] = []
    for checkpoint in islice(cycle(checkpoints), _RUNS + len(checkpoints)):
        started = time.process_time()
        judge_fit(
            checkpoint, card, card.memory_bytes or 0, Parallelism(8), options, _LENGTH, catalog
        )
        taken.append(time.process_time() - started)
    return statistics.median(taken[len(checkpoints) :])


def _cold() -> float:
    """The median over models, each parsed and asked for the first time."""
    catalog = load_catalog()
    card = catalog.accelerator("mi300x")
    taken: list[float] = []
    for model in models().values():
        text = json.dumps({**model.config, "vocab_size": 131_072 + len(taken)})
        started = time.process_time()
        try:
            checkpoint = Checkpoint(parse_config(json.loads(text)))
        except UnsupportedArchitectureError:
            continue
        judge_fit(
            checkpoint, card, card.memory_bytes or 0, Parallelism(8), _options(), _LENGTH, catalog
        )
        taken.append(time.process_time() - started)
    return statistics.median(taken)


def _combinations(checkpoints: list[Checkpoint]) -> float:
    """One model on every device of the catalogue with every degree, again and again."""
    catalog, options = load_catalog(), _options()
    cards = [card for card in catalog.accelerators.values() if card.memory_bytes]
    splits = [Parallelism(degree) for degree in _DEGREES]
    asked = islice(cycle(product(cards, splits)), _COMBINATIONS)
    started = time.process_time()
    for card, split in asked:
        judge_fit(checkpoints[0], card, card.memory_bytes or 0, split, options, _LENGTH, catalog)
    return time.process_time() - started
