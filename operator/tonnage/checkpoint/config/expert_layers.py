"""Find the layers of a model that have experts."""

from tonnage.checkpoint.fields import ConfigFields


def find_expert_layers(config: ConfigFields, layers: int) -> frozenset[int]:
    """Return the indexes of the layers with experts, by the first rule that the config matches.

    Raises CheckpointError for out-of-range fields.
    """
    listed_layers = _read_listed_layers(config, layers)
    if listed_layers is not None:
        return listed_layers
    # DeepSeek and GLM, AFMoE and LFM2, Ernie, Hunyuan
    first = _read_layer_index(
        config,
        "first_k_dense_replace",
        "num_dense_layers",
        "moe_layer_start_index",
        "moe_layer_num_skipped",
    )
    last = min(layers - 1, _read_layer_index(config, "moe_layer_end_index") or layers - 1)
    candidates = range(first, last + 1)
    if "moe_layer_freq" in config:
        every = config.positive("moe_layer_freq")
        return frozenset(index for index in candidates if index % every == 0)
    every = config.positive(
        "interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_interval", default=1
    )
    dense = set(config.integers("mlp_only_layers"))  # Qwen
    return frozenset(
        index for index in candidates if index not in dense and (index + 1) % every == 0
    )


def _read_layer_index(config: ConfigFields, *names: str) -> int:
    """Return an index; of a pair for text and for images (Ernie), the one for text."""
    name = next((name for name in names if isinstance(config.value(name), list)), None)
    return config.count(*names) if name is None else max(config.integers(name)[:1], default=0)


def _read_listed_layers(config: ConfigFields, layers: int) -> frozenset[int] | None:
    """Return the layers that the config lists, None without a list."""
    types = config.names("mlp_layer_types")
    if types:  # GLM-5
        return frozenset(index for index, kind in enumerate(types[:layers]) if kind != "dense")
    if "moe_layers" in config:  # Llama 4
        return frozenset(index for index in config.integers("moe_layers") if index < layers)
    if "moe_layers_enum" in config:  # Step
        return frozenset(index for index in config.enumeration("moe_layers_enum") if index < layers)
    for name in ("is_moe_layer", "moe_layer_freq"):  # Exaone, MiMo-V2
        if isinstance(config.value(name), list):
            return frozenset(
                index
                for index, has_experts in enumerate(config.flags(name)[:layers])
                if has_experts
            )
    return None
