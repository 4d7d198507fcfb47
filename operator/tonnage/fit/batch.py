"""The batch that vLLM plans for: it sets the activation peak and what window layers keep."""

from dataclasses import dataclass

from tonnage.catalog.engine import EngineRelease, WholePrefill
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.model import EngineOptions, Parallelism


@dataclass(frozen=True, slots=True)
class Batch:
    """Limits of one step, and the tokens of all steps that are under way at a time."""

    max_num_batched_tokens: int
    max_num_seqs: int
    in_flight_tokens: int


def plan_batch(
    shape: ModelShape,
    options: EngineOptions,
    parallelism: Parallelism,
    accelerator: Accelerator,
    device_bytes: int,
    release: EngineRelease,
) -> Batch:
    """The limits given, else the release's defaults for a device of that size.

    Source: vllm/engine/arg_utils.py _set_default_max_num_seqs_and_batched_tokens_args,
    vllm/config/vllm.py max_in_flight_tokens.
    """
    tier = release.batch_tier(device_bytes, accelerator.id)
    doubled = 2 if options.throughput_batch else 1
    seqs = options.max_num_seqs or tier.max_num_seqs * doubled
    tokens = options.max_num_batched_tokens
    if tokens is None:
        by_default = tier.offline_batched_tokens if options.offline else tier.max_num_batched_tokens
        by_default *= doubled
        whole = whole_prompt_tokens(shape, options, accelerator, release)
        tokens = min(max(by_default, whole), seqs * options.max_model_len)
    # A pipeline keeps one batch in each stage beside those of asynchronous scheduling.
    batches = release.batches_in_flight + parallelism.pipeline - 1
    return Batch(tokens, min(seqs, tokens), batches * tokens)


def whole_prompt_tokens(
    shape: ModelShape, options: EngineOptions, accelerator: Accelerator, release: EngineRelease
) -> int:
    """Tokens that a step must hold where prompts are not chunked, 0 where they are."""
    rule = release.whole_prefill
    if rule is None:
        # Engines that chunk by default plan for the longest prompt when told not to.
        return options.max_model_len if options.enable_chunked_prefill is False else 0
    if _chunks(shape, options, accelerator, rule):
        return 0
    least = rule.min_multimodal_tokens if shape.towers else rule.min_tokens
    return max(options.max_model_len, least)


def _chunks(
    shape: ModelShape, options: EngineOptions, accelerator: Accelerator, rule: WholePrefill
) -> bool:
    """Whether prompts are cut, as asked for or by themselves."""
    if options.enable_chunked_prefill is not None:
        return options.enable_chunked_prefill
    return (
        options.max_model_len > rule.chunk_above
        and not shape.towers
        and accelerator.vendor not in rule.never_chunking
    )
