"""One question put to the memory calculation, and its answer."""

from dataclasses import dataclass

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.corrections import UNCORRECTED, Corrections
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import EngineOptions, FitVerdict, Parallelism


@dataclass(frozen=True, slots=True)
class FitQuestion:
    """Does one replica of this model, split so and with these options, fit on these devices?

    `device_bytes` is the memory of one device as torch reports it. The KV cache has to hold one
    request of `options.max_model_len`, and `workload_tokens` at once where that is more.
    `corrections` are what starts before have taught.
    """

    checkpoint: Checkpoint
    accelerator: Accelerator
    device_bytes: int
    parallelism: Parallelism
    options: EngineOptions
    workload_tokens: int = 0
    corrections: Corrections = UNCORRECTED

    @property
    def required_tokens(self) -> int:
        """Tokens that the KV cache has to hold at once."""
        return max(self.options.max_model_len, self.workload_tokens)


def answer(question: FitQuestion, catalog: Catalog) -> FitVerdict:
    """The verdict on a question; raises what `judge_fit` raises."""
    return judge_fit(
        question.checkpoint,
        question.accelerator,
        question.device_bytes,
        question.parallelism,
        question.options,
        question.required_tokens,
        catalog,
        question.corrections,
    )
