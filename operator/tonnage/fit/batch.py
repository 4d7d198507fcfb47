"""The batch that vLLM plans for: it sets the activation peak and what window layers keep."""

from dataclasses import dataclass

from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.releases import EngineRelease, WholePrefill
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.model import EngineOptions, Parallelism


@dataclass(frozen=True, slots=True)
class Batch:
    """Limits of one step, and the tokens of all steps that run at the same time."""

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
    """The limits from the options, else the release's defaults for a device of that size.

    Source: vllm/engine/arg_utils.py _set_default_max_num_seqs_and_batched_tokens_args,
    vllm/config/vllm.py max_in_flight_tokens.
    """
    tier = release.batch_tier(device_bytes, accelerator.id)
    multiplier = 2 if options.throughput_batch else 1
    seqs = options.max_num_seqs or tier.max_num_seqs * multiplier
    tokens = options.max_num_batched_tokens
    if tokens is None:
        default_tokens = (
            tier.offline_batched_tokens if options.offline else tier.max_num_batched_tokens
        )
        default_tokens *= multiplier
        prompt_tokens = whole_prompt_tokens(shape, options, accelerator, release)
        tokens = min(max(default_tokens, prompt_tokens), seqs * options.max_model_len)
    # A pipeline keeps one batch in each stage in addition to those of asynchronous scheduling.
    batches = release.batches_in_flight + parallelism.pipeline - 1
    return Batch(tokens, min(seqs, tokens), batches * tokens)


def whole_prompt_tokens(
    shape: ModelShape, options: EngineOptions, accelerator: Accelerator, release: EngineRelease
) -> int:
    """Tokens that a step must hold where vLLM does not chunk prompts, 0 where it does."""
    rule = release.whole_prefill
    if rule is None:
        # These engines chunk by default; with chunking off they plan for the longest prompt.
        return options.max_model_len if options.enable_chunked_prefill is False else 0
    if _chunks(shape, options, accelerator, rule):
        return 0
    min_tokens = rule.min_multimodal_tokens if shape.encoders else rule.min_tokens
    return max(options.max_model_len, min_tokens)


def _chunks(
    shape: ModelShape, options: EngineOptions, accelerator: Accelerator, rule: WholePrefill
) -> bool:
    """Whether vLLM chunks prompts, by the option or by default."""
    if options.enable_chunked_prefill is not None:
        return options.enable_chunked_prefill
    return (
        options.max_model_len > rule.chunk_above
        and not shape.encoders
        and accelerator.vendor not in rule.never_chunking
    )
