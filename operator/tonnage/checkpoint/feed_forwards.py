"""The feed-forward blocks of a model: which layers have experts, and how large both are."""

from dataclasses import replace

from tonnage.catalog.families import Family
from tonnage.checkpoint.attention import read_hidden_size
from tonnage.checkpoint.expert_layers import find_expert_layers
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
_KINDS_OF_TOKENS = 2
_SILU = frozenset({"silu", "swish", "swiglu"})
_ROUTER_BYTES = {"float32": 4, "fp32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2}


class FeedForwardReader:
    """Reads the feed-forward blocks of one config; each layer asks for its own.

    `expert_layers` are the indexes of the layers with experts. Raises CheckpointError for fields
    that are missing or absurd.
    """

    def __init__(self, config: ConfigFields, layers: int, family: Family) -> None:
        inner = _read_intermediate_size(config)
        # Llama 4 means its experts and names the size of dense layers apart.
        dense = config.positive("intermediate_size_mlp", "dense_intermediate_size", default=inner)
        bias = config.flag("mlp_bias", "use_bias", default=family.mlp_bias)
        self._config = config
        dense //= 2 if family.joint_mlp else 1
        self._mlp = Mlp(dense, family.gated_mlp, bias, family.whole_mlp)
        self._experts = _read_experts(config, inner, family)
        self._seeing = _read_seeing_experts(config, self._experts)
        self._beside = config.flag("enable_moe_block")  # Gemma 4: experts beside the MLP
        self._twofold = family.twofold
        self._blocks = config.objects("block_configs")
        self._sizes = _read_sizes(config)
        self._wide_from = _first_wide_layer(config, layers)
        self._beside_it: tuple[FeedForward, ...] = (
            *_read_layer_embedding(config),
            *_read_streams(config),
        )
        found = find_expert_layers(config, layers) if self._experts else frozenset[int]()
        self.expert_layers = found

    def read(self, index: int) -> tuple[FeedForward, ...]:
        """The blocks of layer `index`."""
        return (*self._read_main(index), *self._beside_it)

    def _read_main(self, index: int) -> tuple[FeedForward, ...]:
        if index < len(self._blocks):  # Nemotron-NAS
            return _read_block(self._blocks[index], self._config)
        mlp = self._read_mlp(index)
        if self._experts is None or index not in self.expert_layers:
            return (mlp,)
        if self._twofold:
            return (mlp, mlp, self._experts)
        if self._seeing is not None:
            return (self._experts, self._seeing)
        return (mlp, self._experts) if self._beside else (self._experts,)

    def _read_mlp(self, index: int) -> Mlp:
        size = self._mlp.intermediate_size
        if index < len(self._sizes):
            size = self._sizes[index] or size
        if index >= self._wide_from:
            size *= 2
        return replace(self._mlp, intermediate_size=size)


def _read_intermediate_size(config: ConfigFields) -> int:
    """Size of the MLP; where it is not given, the experts' or four times the hidden size."""
    sizes = _read_sizes(config)
    if sizes:
        return max(sizes)
    given = config.optional_positive("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
    return given or _first_count(config, *_EXPERT_SIZE) or 4 * read_hidden_size(config)


def _read_sizes(config: ConfigFields) -> tuple[int, ...]:
    """The MLP's size in each layer where they differ (Gemma 3n), else nothing."""
    if not isinstance(config.value("intermediate_size"), list):
        return ()
    return config.integers("intermediate_size")


def _read_block(block: ConfigFields, config: ConfigFields) -> tuple[FeedForward, ...]:
    """The MLP of one layer of Nemotron-NAS, none where the search left it out.

    Source: vllm/model_executor/models/nemotron_nas.py DeciLMDecoderLayer.
    """
    inner = block.nested("ffn")
    if inner is None or inner.flag("no_op"):
        return ()
    size = inner.optional_positive("intermediate_size")
    if size is None:
        size = -(-int(2 * inner.number("ffn_mult") * read_hidden_size(config) / 3) // 256) * 256
    return (Mlp(size, bias=config.flag("mlp_bias")),)


def _first_wide_layer(config: ConfigFields, layers: int) -> int:
    """First layer whose MLP is twice as wide: Gemma 4's that read the KV cache of others."""
    shared = config.count("num_kv_shared_layers")
    return layers - shared if shared and config.flag("use_double_wide_mlp") else layers


def _read_layer_embedding(config: ConfigFields) -> tuple[LayerEmbedding, ...]:
    width = config.count("hidden_size_per_layer_input")
    if width == 0:
        return ()
    known = config.positive("vocab_size_per_layer_input", "vocab_size")
    return (LayerEmbedding(width, known),)


def _read_streams(config: ConfigFields) -> tuple[ResidualStreams, ...]:
    count = config.count("altup_num_inputs")
    return (ResidualStreams(count, config.positive("laurel_rank")),) if count else ()


def _read_experts(config: ConfigFields, intermediate_size: int, family: Family) -> Experts | None:
    """The experts, None for a dense model; some families' are as large as their MLP."""
    count = _first_count(config, *_EXPERT_COUNT)
    if count == 0 or not config.flag("enable_moe_block", default=True):
        return None
    size = _first_count(config, *_EXPERT_SIZE) or intermediate_size
    per_token = _first_count(config, *_PER_TOKEN) or 1
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
        bias=family.expert_bias,
        idle_count=config.count("zero_expert_num"),
        router_bytes=_router_bytes(config, family),
        router_bias=family.router_bias or config.text("topk_method") == "noaux_tc",
        silu=_activate_by_silu(config, family),
    )


def _activate_by_silu(config: ConfigFields, family: Family) -> bool:
    """Biased experts (gpt-oss) have a function of their own, whatever the config calls it."""
    given = config.text("hidden_activation", "hidden_act") or "silu"
    return given in _SILU and not family.expert_bias


def _read_seeing_experts(config: ConfigFields, experts: Experts | None) -> Experts | None:
    """Experts for images beside those for text, where the config counts both (Ernie 4.5 VL)."""
    counts = config.value("moe_num_experts")
    if experts is None or not isinstance(counts, list) or len(counts) != _KINDS_OF_TOKENS:
        return None
    count, sizes = config.integers("moe_num_experts")[1], config.integers("moe_intermediate_size")
    return (
        replace(experts, count=count, intermediate_size=sizes[-1], shared_intermediate_size=0)
        if count and sizes
        else None
    )


def _router_bytes(config: ConfigFields, family: Family) -> int:
    given = config.text("router_dtype")
    return _ROUTER_BYTES.get(given or "", family.router_bytes)


def _first_count(config: ConfigFields, *names: str) -> int:
    """A count; where a list gives it layer by layer, the first (Ernie, Hunyuan)."""
    name = next((name for name in names if name in config), None)
    if name is None:
        return 0
    if isinstance(config.value(name), list):
        return max(config.integers(name)[:1], default=0)
    return config.count(name)


def _shared_size(config: ConfigFields, expert_size: int, intermediate_size: int) -> int:
    """Intermediate size of all experts together that every token passes beside its own."""
    given = next((name for name in _SHARED_SIZE if name in config), None)
    if given is not None:
        return config.count(given)
    if any(name in config for name in _SHARED_COUNT):  # DeepSeek, GLM, Ernie
        each = config.positive(_SHARED_EXPERT_SIZE, default=expert_size)
        return _first_count(config, *_SHARED_COUNT) * each
    return intermediate_size if "interleave_moe_layer_step" in config else 0  # Llama 4
