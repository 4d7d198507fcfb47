"""The batch that vLLM plans for: it sets the activation peak and what window layers keep."""

from dataclasses import dataclass

from tonnage.catalog.engine import EngineRelease
from tonnage.fit.model import EngineOptions, Parallelism


@dataclass(frozen=True, slots=True)
class Batch:
    """Limits of one step, and the tokens of all steps that are under way at a time."""

    max_num_batched_tokens: int
    max_num_seqs: int
    in_flight_tokens: int


def plan_batch(
    options: EngineOptions,
    parallelism: Parallelism,
    device_bytes: int,
    accelerator: str,
    release: EngineRelease,
) -> Batch:
    """The limits given, else the release's defaults for a device of that size.

    Source: vllm/engine/arg_utils.py _set_default_max_num_seqs_and_batched_tokens_args,
    vllm/config/vllm.py max_in_flight_tokens.
    """
    tier = release.batch_tier(device_bytes, accelerator)
    seqs = options.max_num_seqs or tier.max_num_seqs
    tokens = options.max_num_batched_tokens or min(
        tier.max_num_batched_tokens, seqs * options.max_model_len
    )
    # A pipeline keeps one batch in each stage beside those of asynchronous scheduling.
    batches = release.batches_in_flight + parallelism.pipeline - 1
    return Batch(tokens, min(seqs, tokens), batches * tokens)
