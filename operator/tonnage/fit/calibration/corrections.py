"""Corrections of the memory calculation for one GPU, measured on real starts.

A measured KV cache, or a start that ran out of memory, gives one figure: the bytes that the other
terms took beyond the calculation, whichever of them it was. The figure holds for every request
length and batch near the measured one. Its key is what the terms depend on: model, precision,
accelerator, release and parallelism. Each term changes with the parallelism in its own way, so a
correction for one GPU says little about two.

A user can make a start report anything. So a correction counts only in the namespace where it was
measured, and in all namespaces only when a person says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights.total import count_parameters

DEFAULT_ENGINE: Final = "vllm"
"""The engine of corrections that name none."""

ENGINES: Final = (DEFAULT_ENGINE, "sglang")
"""The engines whose starts give corrections."""

_BILLION: Final = 10**9


class Origin(StrEnum):
    """The source of a correction."""

    MEASUREMENT = "Measurement"
    """The size of a KV cache that an engine reported; it varies only with requests and batch."""
    FAILURE = "Failure"
    """A lower bound: a start failed because it lacked this much memory."""
    PERSON = "Person"
    """A person wrote it, and the operator never changes it."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded model: its name, the format of its weights and of its KV cache, and the release of
    the engine."""

    model: str
    weights: str
    kv_cache: str
    version: str
    engine: str = DEFAULT_ENGINE


@dataclass(frozen=True, slots=True)
class CorrectionKey:
    """The subject of a correction: a model on one kind of device with one parallelism."""

    served: ServedModel
    accelerator: str
    tensor: int = 1
    pipeline: int = 1
    data: int = 1


@dataclass(frozen=True, slots=True)
class MemoryCorrection:
    """Bytes of one GPU that the calculation misses; negative if it counts too much.

    `of` is the InferenceDeployment that was measured (namespace/name), `on` the day; both are None
    for a correction that a person wrote.
    """

    key: CorrectionKey
    extra_bytes: int
    origin: Origin
    of: str | None = None
    on: date | None = None

    @property
    def namespace(self) -> str | None:
        """The namespace it counts in; None (by a person, or without `of`) means all namespaces."""
        if not self.of or self.origin is Origin.PERSON:
            return None
        return self.of.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Corrections:
    """The corrections that apply to a question, at most one for each key."""

    entries: tuple[MemoryCorrection, ...] = ()

    def find(self, key: CorrectionKey) -> MemoryCorrection | None:
        """The correction for exactly this key, None if there is none."""
        return next((entry for entry in self.entries if entry.key == key), None)

    def of(self, served: ServedModel) -> "Corrections":
        """The corrections of one model, since only those change a question about it."""
        return Corrections(tuple(entry for entry in self.entries if entry.key.served == served))

    def without(self, key: CorrectionKey) -> "Corrections":
        """The corrections without the one for the key."""
        return Corrections(tuple(entry for entry in self.entries if entry.key != key))

    def with_correction(self, correction: MemoryCorrection) -> "Corrections":
        """These, with `correction` in place of the one for its key if it outweighs that one."""
        known = self.find(correction.key)
        if known is not None and not _outweighs(correction, known):
            return self
        return Corrections((*self.without(correction.key).entries, correction))


UNCORRECTED: Final = Corrections()
"""No correction."""


@dataclass(frozen=True, slots=True)
class KnownCorrections:
    """All corrections, at most one for each key and namespace."""

    entries: tuple[MemoryCorrection, ...] = ()

    def counting_in(self, namespace: str) -> Corrections:
        """Corrections that apply in a namespace: its own, and those for all namespaces.

        If both have a key, the one for all namespaces wins if a person wrote it, or if the other
        comes from a failure, a lower bound, and has fewer bytes.
        """
        counts = {entry.key: entry for entry in self.entries if entry.namespace == namespace}
        for entry in self.entries:
            if entry.namespace is None and not _is_better(counts.get(entry.key), entry):
                counts[entry.key] = entry
        return Corrections(tuple(counts.values()))

    def most_careful(self) -> Corrections:
        """Corrections for a plan without a namespace: for each key a person's, else the largest."""
        by_key: dict[CorrectionKey, MemoryCorrection] = {}
        for entry in self.entries:
            known = by_key.get(entry.key)
            if known is None or _priority(entry) > _priority(known):
                by_key[entry.key] = entry
        return Corrections(tuple(by_key.values()))

    def with_correction(self, correction: MemoryCorrection) -> "KnownCorrections":
        """These, with `correction` in place of the one for its key and namespace.

        Unchanged unless it outweighs that one and any for the key that a person wrote.
        """
        replaced = [
            entry
            for entry in self.entries
            if entry.key == correction.key
            and (entry.namespace == correction.namespace or entry.origin is Origin.PERSON)
        ]
        if not all(_outweighs(correction, known) for known in replaced):
            return self
        kept = (entry for entry in self.entries if entry not in replaced)
        return KnownCorrections((*kept, correction))

    def learn_all(self, corrections: Iterable[MemoryCorrection]) -> "KnownCorrections":
        """These, after `with_correction` with each of the corrections."""
        result = self
        for correction in corrections:
            result = result.with_correction(correction)
        return result


NO_CORRECTIONS: Final = KnownCorrections()
"""No corrections."""


def served_model(
    shape: ModelShape, options: EngineOptions, version: str, engine: str = DEFAULT_ENGINE
) -> ServedModel:
    """Names a model by its config, served by this release of an engine.

    So every cluster and file names it alike, and fine-tuned models share their base's corrections.
    """
    checkpoint_dtype = shape.quantization.method if shape.quantization else str(shape.dtype)
    return ServedModel(
        model=_model_name(shape),
        weights=checkpoint_dtype if options.quantization == "auto" else options.quantization,
        kv_cache=options.kv_cache_dtype,
        version=version,
        engine=engine,
    )


def correction_key(
    served: ServedModel, accelerator: Accelerator, parallelism: Parallelism
) -> CorrectionKey:
    """The key of the correction that a start of the model on these devices uses and updates."""
    return CorrectionKey(
        served, accelerator.id, parallelism.tensor, parallelism.pipeline, parallelism.data
    )


@lru_cache(maxsize=1024)
def _model_name(shape: ModelShape) -> str:
    """For example LlamaForCausalLM-80x8192-70.6B: layers, hidden size, parameters."""
    parameters = sum(count_parameters(shape).values()) / _BILLION
    return f"{shape.architecture}-{shape.layers}x{shape.hidden_size}-{parameters:.1f}B"


def _is_better(own: MemoryCorrection | None, general: MemoryCorrection) -> bool:
    """Whether a namespace's own correction wins over the one for all namespaces."""
    if own is None or general.origin is Origin.PERSON:
        return False
    return own.origin is Origin.MEASUREMENT or own.extra_bytes > general.extra_bytes


def _priority(entry: MemoryCorrection) -> tuple[bool, int]:
    return entry.origin is Origin.PERSON, entry.extra_bytes


def _outweighs(new: MemoryCorrection, known: MemoryCorrection) -> bool:
    """Whether `new` replaces `known`.

    A person's correction stays. A measurement replaces any correction of the same object; a failure
    is only a lower bound. A correction of another object needs more bytes, or two objects that
    differ would replace each other's for ever.
    """
    if new == known or known.origin is Origin.PERSON:
        return False
    if new.origin is Origin.MEASUREMENT and new.of == known.of:
        return True
    return new.extra_bytes > known.extra_bytes
