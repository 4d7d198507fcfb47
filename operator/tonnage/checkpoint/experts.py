"""The mixture-of-experts part of a config: how many layers have it and how large it is."""

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Experts


def read_experts(config: ConfigFields, layers: int, intermediate_size: int) -> Experts | None:
    """The experts, None for a dense model.

    `intermediate_size` is that of dense layers, for families whose experts are as large. Raises
    CheckpointError.
    """
    count = config.count("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    expert_layers = len(find_expert_layers(config, layers))
    if count == 0 or expert_layers == 0 or not config.flag("enable_moe_block", default=True):
        return None
    size = config.positive("moe_intermediate_size", default=intermediate_size)
    per_token = config.positive(
        "num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk", "moe_k", default=1
    )
    if per_token > count:
        raise config.wrong(
            "num_experts_per_tok", per_token, f"at most {count}, the experts there are"
        )
    return Experts(
        layers=expert_layers,
        count=count,
        per_token=per_token,
        intermediate_size=size,
        shared_intermediate_size=_shared_size(config, size, intermediate_size),
    )


def find_expert_layers(config: ConfigFields, layers: int) -> frozenset[int]:
    """Indexes of the layers that have experts, by whichever of the families' rules applies.

    Says nothing of whether there are experts at all. Raises CheckpointError.
    """
    types = config.names("mlp_layer_types")
    if types:  # GLM-5
        return frozenset(index for index, kind in enumerate(types[:layers]) if kind != "dense")
    if "moe_layers" in config:  # Llama 4
        return frozenset(index for index in config.integers("moe_layers") if index < layers)
    candidates = range(config.count("first_k_dense_replace"), layers)  # DeepSeek, GLM-4.5
    if "moe_layer_freq" in config:
        every = config.positive("moe_layer_freq")
        return frozenset(index for index in candidates if index % every == 0)
    every = config.positive("interleave_moe_layer_step", "decoder_sparse_step", default=1)
    dense = set(config.integers("mlp_only_layers"))  # Qwen
    return frozenset(
        index for index in candidates if index not in dense and (index + 1) % every == 0
    )


def _shared_size(config: ConfigFields, expert_size: int, intermediate_size: int) -> int:
    """Intermediate size of the expert or MLP that every token passes beside its own experts."""
    if "n_shared_experts" in config:  # DeepSeek, GLM
        return config.count("n_shared_experts") * expert_size
    if "shared_expert_intermediate_size" in config or "shared_intermediate_size" in config:
        return config.count("shared_expert_intermediate_size", "shared_intermediate_size")
    beside = "interleave_moe_layer_step" in config or "enable_moe_block" in config
    return intermediate_size if beside else 0  # Llama 4, Gemma 4
