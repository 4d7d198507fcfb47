"""Whether fewer GPUs suffice if fewer layers have buffers for LoRA adapters."""

from collections.abc import Iterable
from dataclasses import replace

from tonnage.catalog.catalog import Catalog
from tonnage.fit.lora.targets import narrower_targets
from tonnage.fit.messages import format_parallelism
from tonnage.fit.model import FitVerdict, MemoryFit, Parallelism
from tonnage.fit.questions.question import FitQuestion, answer


def smaller_with_targets(
    question: FitQuestion, degrees: Iterable[tuple[Parallelism, FitVerdict]], catalog: Catalog
) -> str | None:
    """A sentence with the most layers that fit on the fewest GPUs, None if that saves no GPU.

    `degrees` are the verdicts on the question with buffers in all layers, fewest GPUs first.
    """
    shape, options = question.checkpoint.shape, question.options
    if not options.enable_lora:
        return None
    for parallelism, verdict in degrees:
        if isinstance(verdict, MemoryFit):
            return None
        for targets in narrower_targets(shape, options.lora_target_modules):
            narrowed = replace(options, lora_target_modules=targets)
            smaller = replace(question, parallelism=parallelism, options=narrowed)
            if isinstance(answer(smaller, catalog), MemoryFit):
                names = ",".join(targets)
                layout = format_parallelism(parallelism)
                return f"with --lora-target-modules {names} it fits with {layout}"
    return None
