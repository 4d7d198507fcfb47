"""The tensors that published checkpoints have, by name, dtype and shape."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

Tensor = tuple[str, str, tuple[int, ...]]

LLAMA: Final[Mapping[str, Any]] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
    "num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 4096, "head_dim": 128,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 32000,
    "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip

FP8: Final = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def llama_linears(config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Rows and columns of each linear layer."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    return {
        "self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden), "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }  # fmt: skip


def llama_tensors(
    config: Mapping[str, Any] = LLAMA, plain: frozenset[str] | None = None, dtype: str = "BF16"
) -> Iterator[Tensor]:
    """The tensors of a Llama: `plain` linear layers are `dtype`, the others FP8 in blocks.

    A plain layer is `<layer>.<name>` or `<name>` for each layer; None: all are.
    """
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    yield "model.embed_tokens.weight", dtype, (vocabulary, hidden)
    yield "lm_head.weight", dtype, (vocabulary, hidden)
    yield "model.norm.weight", dtype, (hidden,)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}.{norm}.weight", dtype, (hidden,)
        for name, (rows, columns) in llama_linears(config).items():
            if plain is None or {name, f"{layer}.{name}"} & plain:
                yield f"{prefix}.{name}.weight", dtype, (rows, columns)
            else:
                yield f"{prefix}.{name}.weight", "F8_E4M3", (rows, columns)
                blocks = (-(-rows // 128), -(-columns // 128))
                yield f"{prefix}.{name}.weight_scale_inv", "F32", blocks
