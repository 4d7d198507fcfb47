"""Memory of a multimodal model's encoder in the profile run.

vLLM encodes as many images or clips of the largest size as a step may bring, and keeps the outputs
while it profiles the language model (vllm/v1/worker/gpu_model_runner.py profile_run,
vllm/multimodal/encoder_budget.py).
"""

from dataclasses import dataclass
from typing import Final

from tonnage.catalog.models.encoders import encoder_item
from tonnage.catalog.vllm.profiling import PaddedTo, ProfileRun
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.batch import Batch
from tonnage.fit.model import EngineOptions
from tonnage.fit.weights.precision import COMPUTE_BYTES

_LIVE_WIDTHS: Final = 8
"""Hidden states of all patches that a layer holds at once: residual, normalised input,
query, key and value, the rotated query and key, and attention's output; gathered from all ranks
(vllm/model_executor/models/qwen2_5_vl.py Qwen2_5_VisionAttention)."""

_PATCH_VALUES: Final = 1536
"""Pixels of a patch: 3 colours, 2 frames, 16 x 16."""


@dataclass(frozen=True, slots=True)
class EncoderMemory:
    """Bytes at the encoder's own peak, and bytes kept while vLLM profiles the language model.

    `items` is the number of images or clips in the run.
    """

    items: int
    peak_bytes: int
    kept_bytes: int


NO_ENCODER: Final = EncoderMemory(0, 0, 0)


def encoder_memory(
    shape: ModelShape, batch: Batch, options: EngineOptions, run: ProfileRun
) -> EncoderMemory:
    """The encoder's memory in the profile run; none if the model has no encoder or skips it."""
    if not shape.encoders or options.language_model_only:
        return NO_ENCODER
    item = encoder_item(shape.architecture)
    tokens = item.tokens * max(1, min(item.clips, options.max_model_len // item.tokens))
    charged_tokens = max(tokens, item.charged_tokens if run.pads_encoder_outputs else 0)
    budget = max(batch.max_num_batched_tokens, charged_tokens)
    items = batch.max_num_seqs
    if not item.per_sequence:
        items = min(items, budget // charged_tokens)
    patches = items * tokens * item.patches_per_token
    padded_tokens = {PaddedTo.BUDGET: budget, PaddedTo.ITEM: charged_tokens, None: 0}[
        run.pads_encoder_outputs
    ]
    output_width = shape.hidden_size * item.outputs
    padded_copy_bytes = (
        items * padded_tokens * output_width * COMPUTE_BYTES if padded_tokens > tokens else 0
    )
    held_bytes = (patches * _PATCH_VALUES + items * tokens * output_width) * COMPUTE_BYTES
    layer_bytes = patches * item.width * _LIVE_WIDTHS * COMPUTE_BYTES
    return EncoderMemory(
        items, held_bytes + max(layer_bytes, padded_copy_bytes), held_bytes + padded_copy_bytes
    )
