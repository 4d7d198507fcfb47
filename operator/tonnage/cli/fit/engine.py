"""The words of each engine in answers, where they differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tonnage.catalog.sglang import load_sglang_memory
from tonnage.fit.engines.sglang import SGLANG_MEMORY, replica_in
from tonnage.fit.engines.vllm import VLLM_MEMORY
from tonnage.fit.legality.engine_choice import EngineAnswer
from tonnage.fit.model import MemoryTerm
from tonnage.fit.questions.question import FitQuestion, MemoryModel
from tonnage.fit.sglang.fraction import static_fraction
from tonnage.fit.sglang.model import StaticFraction


class Engine(StrEnum):
    """A server of models whose memory is calculated."""

    VLLM = "vllm"
    SGLANG = "sglang"


AUTO: Final = "auto"
"""Both are judged, and one is taken, as by `spec.engine.type: Auto`."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine that is taken, None where no engine is known to run the model, with the reason,
    and what each engine answered."""

    taken: Engine | None
    reason: str
    answers: tuple[EngineAnswer, ...]


@dataclass(frozen=True, slots=True)
class EngineWords:
    """The memory of an engine, its name, its flags for the context and for the requests at a time,
    the terms that it counts in its budget, and what it may do where memory is tight or nearly
    suffices."""

    memory: MemoryModel
    name: str
    context_flag: str
    requests_flag: str
    terms: frozenset[MemoryTerm]
    if_tight: str
    if_narrow: str


WORDS: Final[Mapping[Engine, EngineWords]] = {
    Engine.VLLM: EngineWords(
        memory=VLLM_MEMORY,
        name="vLLM",
        context_flag="--max-model-len",
        requests_flag="--max-num-seqs",
        terms=frozenset(MemoryTerm),
        if_tight="vLLM may fail to start",
        if_narrow="vLLM may still start",
    ),
    Engine.SGLANG: EngineWords(
        memory=SGLANG_MEMORY,
        name="SGLang",
        context_flag="--context-length",
        requests_flag="--max-running-requests",
        terms=frozenset(
            {
                MemoryTerm.WEIGHTS,
                MemoryTerm.NON_TORCH,
                MemoryTerm.CORRECTION,
                MemoryTerm.KV_CACHE,
            }
        ),
        if_tight="SGLang's pool may be too small",
        if_narrow="SGLang's pool may still be large enough",
    ),
}


def engine_of(question: FitQuestion) -> Engine:
    """The engine that the question is about."""
    return Engine(question.memory.name)


def engine_version(question: FitQuestion) -> str:
    """The release that the question is about."""
    if engine_of(question) is Engine.SGLANG:
        return load_sglang_memory().version
    return question.options.release


def fraction_of(question: FitQuestion) -> StaticFraction | None:
    """SGLang's share of the memory for weights and KV cache; None for vLLM.

    Raises NotCalculatedError.
    """
    if engine_of(question) is not Engine.SGLANG:
        return None
    return static_fraction(replica_in(question), load_sglang_memory())
