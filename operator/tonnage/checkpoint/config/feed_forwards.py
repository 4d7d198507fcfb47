"""Read the feed-forward blocks of a model: its MLPs, its experts and the layers that have them."""

from dataclasses import replace

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.config.attention import read_hidden_size
from tonnage.checkpoint.config.expert_layers import find_expert_layers
from tonnage.checkpoint.feed_forward_kinds import LayerEmbedding, ResidualStreams
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Experts, FeedForward, Mlp

_EXPERT_COUNT = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_EXPERT_SIZE = ("moe_intermediate_size", "expert_ffn_hidden_size", "expert_intermediate_size")
_PER_TOKEN = (
    "num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk", "moe_k", "moe_top_k",
    "num_experts_per_token",
)  # fmt: skip
_SHARED_COUNT = (
    "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert",
)  # fmt: skip
_SHARED_SIZE = (
    "shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim",
)  # fmt: skip
_SHARED_EXPERT_SIZE = "moe_shared_expert_intermediate_size"
_MODALITIES = 2
_SILU = frozenset({"silu", "swish", "swiglu"})
_ROUTER_BYTES = {"float32": 4, "fp32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2}


class FeedForwardReader:
    """Reads the feed-forward blocks of each layer of one config.

    `expert_layers` are the indexes of the layers with experts. Raises CheckpointError for missing
    and out-of-range fields.
    """

    def __init__(self, config: ConfigFields, layers: int, family: Family) -> None:
        inner = _read_intermediate_size(config)
        # In Llama 4's configs this is the experts' size; dense layers have a field of their own.
        dense = config.positive("intermediate_size_mlp", "dense_intermediate_size", default=inner)
        bias = config.flag("mlp_bias", "use_bias", default=family.mlp_bias)
        self._config = config
        dense //= 2 if family.joint_mlp else 1
        self._mlp = Mlp(dense, family.gated_mlp, bias, family.whole_mlp)
        self._experts = _read_experts(config, inner, family)
        self._vision_experts = _read_vision_experts(config, self._experts)
        self._has_mlp_and_experts = config.flag("enable_moe_block")  # Gemma 4
        self._twofold = family.twofold
        self._blocks = config.objects("block_configs")
        self._sizes = _read_sizes(config)
        self._first_wide_layer = _find_first_wide_layer(config, layers)
        self._extra_blocks: tuple[FeedForward, ...] = (
            *_read_layer_embedding(config),
            *_read_residual_streams(config),
        )
        self.expert_layers = (
            find_expert_layers(config, layers) if self._experts else frozenset[int]()
        )

    def read(self, index: int) -> tuple[FeedForward, ...]:
        """Return the blocks of layer `index`."""
        return (*self._read_main_blocks(index), *self._extra_blocks)

    def _read_main_blocks(self, index: int) -> tuple[FeedForward, ...]:
        if index < len(self._blocks):  # Nemotron-NAS
            return _read_block(self._blocks[index], self._config)
        mlp = self._read_mlp(index)
        if self._experts is None or index not in self.expert_layers:
            return (mlp,)
        if self._twofold:
            return (mlp, mlp, self._experts)
        if self._vision_experts is not None:
            return (self._experts, self._vision_experts)
        return (mlp, self._experts) if self._has_mlp_and_experts else (self._experts,)

    def _read_mlp(self, index: int) -> Mlp:
        size = self._mlp.intermediate_size
        if index < len(self._sizes):
            size = self._sizes[index] or size
        if index >= self._first_wide_layer:
            size *= 2
        return replace(self._mlp, intermediate_size=size)


def _read_intermediate_size(config: ConfigFields) -> int:
    """Return the MLP's size; by default that of the experts, else four times the hidden size."""
    sizes = _read_sizes(config)
    if sizes:
        return max(sizes)
    size = config.optional_positive("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
    return size or _read_first_count(config, *_EXPERT_SIZE) or 4 * read_hidden_size(config)


def _read_sizes(config: ConfigFields) -> tuple[int, ...]:
    """Return the MLP's size in each layer where layers differ (Gemma 3n), else ()."""
    if not isinstance(config.value("intermediate_size"), list):
        return ()
    return config.integers("intermediate_size")


def _read_block(block: ConfigFields, config: ConfigFields) -> tuple[FeedForward, ...]:
    """Return the MLP of one layer of Nemotron-NAS, () where the search removed it.

    Source: vllm/model_executor/models/nemotron_nas.py DeciLMDecoderLayer.
    """
    ffn = block.nested("ffn")
    if ffn is None or ffn.flag("no_op"):
        return ()
    size = ffn.optional_positive("intermediate_size")
    if size is None:
        size = -(-int(2 * ffn.number("ffn_mult") * read_hidden_size(config) / 3) // 256) * 256
    return (Mlp(size, bias=config.flag("mlp_bias")),)


def _find_first_wide_layer(config: ConfigFields, layers: int) -> int:
    """Return the first layer whose MLP is twice as wide: Gemma 4's that share the KV cache."""
    shared = config.count("num_kv_shared_layers")
    return layers - shared if shared and config.flag("use_double_wide_mlp") else layers


def _read_layer_embedding(config: ConfigFields) -> tuple[LayerEmbedding, ...]:
    width = config.count("hidden_size_per_layer_input")
    if width == 0:
        return ()
    vocab_size = config.positive("vocab_size_per_layer_input", "vocab_size")
    return (LayerEmbedding(width, vocab_size),)


def _read_residual_streams(config: ConfigFields) -> tuple[ResidualStreams, ...]:
    count = config.count("altup_num_inputs")
    return (ResidualStreams(count, config.positive("laurel_rank")),) if count else ()


def _read_experts(config: ConfigFields, intermediate_size: int, family: Family) -> Experts | None:
    """Return the experts, None for a dense model; their size defaults to that of the MLP."""
    count = _read_first_count(config, *_EXPERT_COUNT)
    if count == 0 or not config.flag("enable_moe_block", default=True):
        return None
    size = _read_first_count(config, *_EXPERT_SIZE) or intermediate_size
    per_token = _read_first_count(config, *_PER_TOKEN) or 1
    if per_token > count:
        raise config.invalid(
            "num_experts_per_tok", per_token, f"at most {count}, the number of experts"
        )
    return Experts(
        count=count,
        per_token=per_token,
        intermediate_size=size,
        shared_intermediate_size=_read_shared_size(config, size, intermediate_size),
        shared_gate="shared_expert_intermediate_size" in config,
        bias=family.expert_bias,
        idle_count=config.count("zero_expert_num"),
        router_bytes=_read_router_bytes(config, family),
        router_bias=family.router_bias or config.text("topk_method") == "noaux_tc",
        silu=_uses_silu(config, family),
    )


def _uses_silu(config: ConfigFields, family: Family) -> bool:
    """Return whether SiLU activates experts; biased ones (gpt-oss) have a function of their own."""
    activation = config.text("hidden_activation", "hidden_act") or "silu"
    return activation in _SILU and not family.expert_bias


def _read_vision_experts(config: ConfigFields, experts: Experts | None) -> Experts | None:
    """Return the experts for images, None if the config has only those for text (Ernie 4.5 VL)."""
    counts = config.value("moe_num_experts")
    if experts is None or not isinstance(counts, list) or len(counts) != _MODALITIES:
        return None
    count, sizes = config.integers("moe_num_experts")[1], config.integers("moe_intermediate_size")
    return (
        replace(experts, count=count, intermediate_size=sizes[-1], shared_intermediate_size=0)
        if count and sizes
        else None
    )


def _read_router_bytes(config: ConfigFields, family: Family) -> int:
    dtype = config.text("router_dtype")
    return _ROUTER_BYTES.get(dtype or "", family.router_bytes)


def _read_first_count(config: ConfigFields, *names: str) -> int:
    """Return a count, or the first of a list of counts (Ernie, Hunyuan); 0 when absent."""
    name = next((name for name in names if name in config), None)
    if name is None:
        return 0
    if isinstance(config.value(name), list):
        return max(config.integers(name)[:1], default=0)
    return config.count(name)


def _read_shared_size(config: ConfigFields, expert_size: int, intermediate_size: int) -> int:
    """Return the intermediate size of all shared experts together, 0 without any."""
    name = next((name for name in _SHARED_SIZE if name in config), None)
    if name is not None:
        return config.count(name)
    if any(name in config for name in _SHARED_COUNT):  # DeepSeek, GLM, Ernie
        size = config.positive(_SHARED_EXPERT_SIZE, default=expert_size)
        return _read_first_count(config, *_SHARED_COUNT) * size
    return intermediate_size if "interleave_moe_layer_step" in config else 0  # Llama 4
