"""What real starts have taught about the memory of one GPU, beyond the calculation.

One figure is all that a measured KV cache, or a start that lacked memory, can tell: bytes that the
other terms take more than was counted, whichever of them it is. It is the same figure for every
request length and batch near the one measured, so it is kept by what the terms follow from: model,
precision, accelerator, release and split. The split is part of it since each term changes with it
in its own way: bytes learnt on one GPU say little of the share that two would have.

Who runs a start can have it tell anything. So a lesson counts in the namespace that it was learnt
in, and for all only when a person says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights import count_parameters

_BILLION: Final = 10**9


class Origin(StrEnum):
    """Where a correction comes from."""

    MEASUREMENT = "Measurement"
    """vLLM sized its KV cache so: nothing but other requests and batches can make it differ."""
    FAILURE = "Failure"
    """A start lacked so much at least."""
    PERSON = "Person"
    """Somebody wrote it, and only somebody changes it."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as it is loaded: its name, the format of its weights and of its KV cache."""

    model: str
    weights: str
    kv_cache: str
    vllm_version: str


@dataclass(frozen=True, slots=True)
class CorrectionKey:
    """What a correction speaks of: a model on one kind of device, split in one way."""

    served: ServedModel
    accelerator: str
    tensor: int = 1
    pipeline: int = 1


@dataclass(frozen=True, slots=True)
class MemoryCorrection:
    """Bytes of one GPU that the calculation misses; negative where it counts too much.

    `of` is the InferenceDeployment that taught it (namespace/name), `on` the day; None where a
    person wrote it.
    """

    key: CorrectionKey
    extra_bytes: int
    origin: Origin
    of: str | None = None
    on: date | None = None

    @property
    def namespace(self) -> str | None:
        """Where it counts; None is everywhere: what a person wrote, or took the teacher from."""
        if not self.of or self.origin is Origin.PERSON:
            return None
        return self.of.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Corrections:
    """What counts for a question, at most one correction a key."""

    entries: tuple[MemoryCorrection, ...] = ()

    def find(self, key: CorrectionKey) -> MemoryCorrection | None:
        """The correction for just this, None where nothing was learnt."""
        return next((entry for entry in self.entries if entry.key == key), None)

    def of(
        self, shape: ModelShape, options: EngineOptions, release: EngineRelease
    ) -> "Corrections":
        """Those of one model: what is learnt of others does not change a question about it."""
        if not self.entries:
            return self
        served = served_model(shape, options, release)
        return Corrections(tuple(entry for entry in self.entries if entry.key.served == served))

    def without(self, key: CorrectionKey) -> "Corrections":
        """As if nothing had been learnt for the key."""
        return Corrections(tuple(entry for entry in self.entries if entry.key != key))

    def learn(self, lesson: MemoryCorrection) -> "Corrections":
        """With the lesson in place of what was known for its key, unless that is to stay."""
        known = self.find(lesson.key)
        if known is not None and not _outweighs(lesson, known):
            return self
        return Corrections((*self.without(lesson.key).entries, lesson))


UNCORRECTED: Final = Corrections()
"""Nothing was learnt."""


@dataclass(frozen=True, slots=True)
class LearntCorrections:
    """All that was learnt, at most one correction a key and namespace."""

    entries: tuple[MemoryCorrection, ...] = ()

    def counting_in(self, namespace: str) -> Corrections:
        """What counts for the plans of a namespace: its own lessons, and what counts for all. Of
        both that of all stays where a person wrote it, or where it is more careful than a failure,
        which is a lower bound."""
        counts = {entry.key: entry for entry in self.entries if entry.namespace == namespace}
        for entry in self.entries:
            if entry.namespace is None and not _is_better(counts.get(entry.key), entry):
                counts[entry.key] = entry
        return Corrections(tuple(counts.values()))

    def most_careful(self) -> Corrections:
        """What a person plans with who has no namespace in mind: of several that speak of one key a
        person's, else the one that takes most."""
        found: dict[CorrectionKey, MemoryCorrection] = {}
        for entry in self.entries:
            known = found.get(entry.key)
            if known is None or _care(entry) > _care(known):
                found[entry.key] = entry
        return Corrections(tuple(found.values()))

    def learn(self, lesson: MemoryCorrection) -> "LearntCorrections":
        """With the lesson in place of what its namespace had learnt of its key, unless that is to
        stay, or a person wrote what is to count."""
        rivals = [
            entry
            for entry in self.entries
            if entry.key == lesson.key
            and (entry.namespace == lesson.namespace or entry.origin is Origin.PERSON)
        ]
        if not all(_outweighs(lesson, known) for known in rivals):
            return self
        return LearntCorrections((*(one for one in self.entries if one not in rivals), lesson))

    def learn_all(self, lessons: Iterable[MemoryCorrection]) -> "LearntCorrections":
        """With each of the lessons."""
        known = self
        for lesson in lessons:
            known = known.learn(lesson)
        return known


NOTHING_LEARNT: Final = LearntCorrections()
"""Of no start anything is known."""


def served_model(shape: ModelShape, options: EngineOptions, release: EngineRelease) -> ServedModel:
    """How corrections name a model: by its config, so that every cluster and file names it alike,
    and those that were trained further from one base learn from each other."""
    stored = shape.quantization.method if shape.quantization else str(shape.dtype)
    return ServedModel(
        model=_model_name(shape),
        weights=stored if options.quantization == "auto" else options.quantization,
        kv_cache=options.kv_cache_dtype,
        vllm_version=release.version,
    )


def correction_key(
    served: ServedModel, accelerator: Accelerator, parallelism: Parallelism
) -> CorrectionKey:
    """What a start of the model on these devices teaches about, and learns from."""
    return CorrectionKey(served, accelerator.id, parallelism.tensor, parallelism.pipeline)


@lru_cache(maxsize=1024)
def _model_name(shape: ModelShape) -> str:
    """For example LlamaForCausalLM-80x8192-70.6B: layers, hidden size, parameters."""
    parameters = sum(count_parameters(shape).values()) / _BILLION
    return f"{shape.architecture}-{shape.layers}x{shape.hidden_size}-{parameters:.1f}B"


def _is_better(own: MemoryCorrection | None, of_all: MemoryCorrection) -> bool:
    """Whether what a namespace has learnt itself counts there, and not what counts for all."""
    if own is None or of_all.origin is Origin.PERSON:
        return False
    return own.origin is Origin.MEASUREMENT or own.extra_bytes > of_all.extra_bytes


def _care(entry: MemoryCorrection) -> tuple[bool, int]:
    return entry.origin is Origin.PERSON, entry.extra_bytes


def _outweighs(lesson: MemoryCorrection, known: MemoryCorrection) -> bool:
    """A person's figure stays. What an object measured it may correct itself; what another one did
    only where that one takes more, or two that differ would correct each other for ever. A failure
    is a lower bound, and a measurement is better than any bound of the same object's."""
    if lesson == known or known.origin is Origin.PERSON:
        return False
    if lesson.origin is Origin.MEASUREMENT and lesson.of == known.of:
        return True
    return lesson.extra_bytes > known.extra_bytes
