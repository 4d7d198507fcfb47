"""Config adapters: families whose config.json has its own field names for layers."""

from collections.abc import Mapping
from typing import Final

from tonnage.checkpoint.config.blocks import LayerReaderFactory
from tonnage.checkpoint.families.deepseek_v4 import read_deepseek_v4
from tonnage.checkpoint.families.glm5_next import read_glm5_next
from tonnage.checkpoint.families.linear_hybrids import read_bailing_hybrid, read_kimi_linear
from tonnage.checkpoint.families.minimax_m3 import read_minimax_m3
from tonnage.checkpoint.families.nemotron import read_nemotron_h
from tonnage.checkpoint.families.state_space import (
    read_falcon_h1,
    read_granite_hybrid,
    read_jamba,
    read_lfm2,
    read_mamba,
    read_mamba2,
)

LAYER_READERS: Final[Mapping[str, LayerReaderFactory]] = {
    "bailing_hybrid": read_bailing_hybrid,
    "deepseek_v4": read_deepseek_v4,
    "falcon_h1": read_falcon_h1,
    "falcon_mamba": read_mamba,
    "glm5_next": read_glm5_next,
    "glm5_next_text": read_glm5_next,
    "granitemoehybrid": read_granite_hybrid,
    "jamba": read_jamba,
    "kimi_linear": read_kimi_linear,
    "lfm2": read_lfm2,
    "lfm2_moe": read_lfm2,
    "mamba": read_mamba,
    "mamba2": read_mamba2,
    "minimax_m3_text": read_minimax_m3,
    "minimax_m3_vl": read_minimax_m3,
    "minimax_m3_vl_text": read_minimax_m3,
    "nemotron_h": read_nemotron_h,
    "nemotron_h_puzzle": read_nemotron_h,
}
"""Layer readers by the language model's `model_type`."""
