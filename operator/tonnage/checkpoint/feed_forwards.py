"""The feed-forward blocks of a model: which layers have experts, and how large both are."""

from tonnage.catalog.architectures import Families
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixers import read_hidden_size
from tonnage.checkpoint.model import Experts, FeedForward, Mlp


class FeedForwardReader:
    """Reads the feed-forward blocks of one config; each layer asks for its own.

    `expert_layers` are the indexes of the layers with experts. Raises CheckpointError for fields
    that are missing or absurd.
    """

    def __init__(self, config: ConfigFields, layers: int, families: Families) -> None:
        family = config.text("model_type") or ""
        inner = _read_intermediate_size(config)
        gated = family not in families.ungated
        # Llama 4 means its experts and names the size of dense layers apart.
        self._mlp = Mlp(config.positive("intermediate_size_mlp", default=inner), gated)
        self._experts = _read_experts(config, inner)
        self._beside = config.flag("enable_moe_block")  # Gemma 4: experts beside the MLP
        found = _find_expert_layers(config, layers) if self._experts else frozenset[int]()
        self.expert_layers = found

    def read(self, index: int) -> tuple[FeedForward, ...]:
        """The blocks of layer `index`."""
        if self._experts is None or index not in self.expert_layers:
            return (self._mlp,)
        return (self._mlp, self._experts) if self._beside else (self._experts,)


def _read_intermediate_size(config: ConfigFields) -> int:
    """Size of the MLP; where it is not given, the experts' or four times the hidden size."""
    given = config.optional_positive("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
    experts = config.optional_positive("moe_intermediate_size")
    return given or experts or 4 * read_hidden_size(config)


def _read_experts(config: ConfigFields, intermediate_size: int) -> Experts | None:
    """The experts, None for a dense model; some families' are as large as their MLP."""
    count = config.count("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    if count == 0 or not config.flag("enable_moe_block", default=True):
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
        count=count,
        per_token=per_token,
        intermediate_size=size,
        shared_intermediate_size=_shared_size(config, size, intermediate_size),
        shared_gate="shared_expert_intermediate_size" in config,
    )


def _find_expert_layers(config: ConfigFields, layers: int) -> frozenset[int]:
    """Indexes of the layers that have experts, by whichever of the families' rules applies."""
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
    """Intermediate size of all experts together that every token passes beside its own."""
    if "n_shared_experts" in config:  # DeepSeek, GLM
        return config.count("n_shared_experts") * expert_size
    if "shared_expert_intermediate_size" in config or "shared_intermediate_size" in config:
        return config.count("shared_expert_intermediate_size", "shared_intermediate_size")
    return intermediate_size if "interleave_moe_layer_step" in config else 0  # Llama 4
