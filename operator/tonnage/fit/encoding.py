"""What a multimodal model's encoder takes in the profile run.

vLLM encodes as many images or clips of the largest size as a step may bring, and keeps what comes
out while it profiles the language model (vllm/v1/worker/gpu_model_runner.py profile_run,
vllm/multimodal/encoder_budget.py).
"""

from dataclasses import dataclass
from typing import Final

from tonnage.catalog.encoders import encoder_item
from tonnage.catalog.profiling import PaddedTo, ProfileRun
from tonnage.checkpoint.model import ModelShape
from tonnage.fit.batch import Batch
from tonnage.fit.model import EngineOptions
from tonnage.fit.precision import COMPUTE_BYTES

_LIVE_WIDTHS: Final = 8
"""Hidden states of all patches that are alive at once in a layer: residual, normalised input,
query, key and value, the rotated query and key, and attention's output; gathered from all ranks
(vllm/model_executor/models/qwen2_5_vl.py Qwen2_5_VisionAttention)."""

_PATCH_VALUES: Final = 1536
"""Pixels of a patch: 3 colours, 2 frames, 16 x 16."""


@dataclass(frozen=True, slots=True)
class EncoderMemory:
    """Bytes at the encoder's own peak, and those kept while the language model is profiled.

    `items` are the images or clips of the run.
    """

    items: int
    peak_bytes: int
    kept_bytes: int


NO_ENCODER: Final = EncoderMemory(0, 0, 0)


def encoder_memory(
    shape: ModelShape, batch: Batch, options: EngineOptions, run: ProfileRun
) -> EncoderMemory:
    """The encoder's share of the profile run; nothing where there is none or it is not loaded."""
    if not shape.towers or options.language_model_only:
        return NO_ENCODER
    item = encoder_item(shape.architecture)
    tokens = item.tokens * max(1, min(item.clips, options.max_model_len // item.tokens))
    charged = max(tokens, item.charged_tokens if run.pads_encoder_outputs else 0)
    budget = max(batch.max_num_batched_tokens, charged)
    items = batch.max_num_seqs
    if not item.per_sequence:
        items = min(items, budget // charged)
    patches = items * tokens * item.patches_per_token
    padded = {PaddedTo.BUDGET: budget, PaddedTo.ITEM: charged, None: 0}[run.pads_encoder_outputs]
    state = shape.hidden_size * item.outputs
    copied = items * padded * state * COMPUTE_BYTES if padded > tokens else 0
    kept = (patches * _PATCH_VALUES + items * tokens * state) * COMPUTE_BYTES
    layers = patches * item.width * _LIVE_WIDTHS * COMPUTE_BYTES
    return EncoderMemory(items, kept + max(layers, copied), kept + copied)
