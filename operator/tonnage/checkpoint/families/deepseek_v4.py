"""Read the layers of DeepSeek-V4: attention to compressed latents, and hyper-connections.

Source: vllm/models/deepseek_v4/attention.py and nvidia/model.py of 0.32.0.
"""

from dataclasses import replace

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.config.attention import read_heads, read_hidden_size
from tonnage.checkpoint.config.blocks import LayerBlocks, LayerReader
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixer_kinds import OVERLAPPING_RATIO, CompressedAttention
from tonnage.checkpoint.model import Experts


def read_deepseek_v4(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Return the reader; `compress_ratios` has each layer's ratio, 0 and 1 for no compression.

    The first `num_hash_layers` layers look up a token's experts in a table of 32-bit numbers.
    """
    ratios = config.integers("compress_ratios")
    if len(ratios) < layers:
        raise config.invalid("compress_ratios", ratios, f"one entry for each of {layers} layers")
    experts, hashing = _read_experts(config), config.count("num_hash_layers")
    table = config.positive("vocab_size") * experts.per_token
    hidden, streams = read_hidden_size(config), config.positive("hc_mult", default=1)
    mixing = count_hyper_connection_elements(hidden, streams)

    def read(index: int) -> LayerBlocks:
        hashed = index < hashing
        return LayerBlocks(
            mixers=(_read_attention(config, max(1, ratios[index])),),
            feed_forwards=(replace(experts, router_bias=False) if hashed else experts,),
            norm_elements=2 * hidden,
            float32_elements=mixing + table if hashed else mixing,
        )

    return read


def count_hyper_connection_elements(hidden: int, streams: int) -> int:
    """Count the 32-bit weights that mix residual streams before and after a layer's two blocks.

    Each block has a matrix from all streams to the mixing coefficients, their biases and scales.
    """
    coefficients = (2 + streams) * streams
    return 2 * (coefficients * (streams * hidden + 1) + 3)


def _read_attention(config: ConfigFields, ratio: int) -> CompressedAttention:
    indexed = ratio == OVERLAPPING_RATIO
    return CompressedAttention(
        heads=read_heads(config),
        head_dim=config.positive("head_dim"),
        rope_head_dim=config.positive("qk_rope_head_dim"),
        query_rank=config.positive("q_lora_rank"),
        output_rank=config.positive("o_lora_rank"),
        output_groups=config.positive("o_groups"),
        window=config.positive("sliding_window"),
        compress_ratio=ratio,
        indexer_heads=config.positive("index_n_heads") if indexed else 0,
        indexer_head_dim=config.positive("index_head_dim") if indexed else 0,
        index_top_k=config.positive("index_topk") if indexed else 0,
    )


def _read_experts(config: ConfigFields) -> Experts:
    inner = config.positive("moe_intermediate_size")
    return Experts(
        count=config.positive("n_routed_experts"),
        per_token=config.positive("num_experts_per_tok"),
        intermediate_size=inner,
        shared_intermediate_size=config.count("n_shared_experts") * inner,
        router_bias=config.text("topk_method") == "noaux_tc",
    )
