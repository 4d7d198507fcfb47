"""One question to the memory calculation, and its answer."""

from dataclasses import dataclass

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.calibration.corrections import UNCORRECTED, Corrections
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import EngineOptions, FitVerdict, Parallelism


@dataclass(frozen=True, slots=True)
class FitQuestion:
    """Does one replica of this model fit on these devices with this parallelism and these options?

    `device_bytes` is the memory of one device as torch reports it. The KV cache must hold one
    request of `options.max_model_len`, and `workload_tokens` at once if that is more.
    `corrections` come from earlier starts.
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
        """Tokens that the KV cache must hold at once."""
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
