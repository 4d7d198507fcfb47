"""What decides how a model's layers are cached, apart from the model itself."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tonnage.catalog.kv_cache import BlockTokens, CacheDtype, KvCacheRules, StatePrefixes
from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.model import DType, ModelShape
from tonnage.fit.matrix import Split
from tonnage.fit.model import EngineOptions, Parallelism

_DECLARED: Final = {8: "fp8_e4m3", 4: "nvfp4"}
"""Element types by the bits that a checkpoint declares: MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP."""


class LatentStorage(StrEnum):
    """What is cached of latent attention: the latent, or keys and values of every head.

    `padded_heads`: padded to what the attention kernels of the time could do.
    """

    LATENT = "latent"
    HEADS = "heads"
    PADDED_HEADS = "padded_heads"


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """How the layers of one model are cached on one rank.

    `attention_dtype` and `latent_dtype` are the element types of keys and values and of latents,
    `model_bytes` the size of an element of the model's own type. With `keeps_prefixes` states are
    kept for other requests, `drafts` are the tokens that are drafted in a step, `retained` those
    that are kept beyond a window for them. `row_multiple` is what the bytes of a latent are rounded
    up to.
    """

    split: Split
    attention_dtype: str
    latent_dtype: str
    model_bytes: int
    block_size: int | None
    keeps_prefixes: bool
    drafts: int
    retained: int
    latents: LatentStorage
    row_multiple: int
    blocks: BlockTokens
    rules: KvCacheRules

    def element(self, dtype: str) -> CacheDtype:
        """Bytes of elements of a resolved type. Raises ValueError for one that is not known."""
        if dtype == "auto":
            return CacheDtype(bits=8 * self.model_bytes)
        found = self.rules.dtypes.get(dtype)
        if found is None:
            known = ", ".join(sorted(self.rules.dtypes))
            raise ValueError(f"KV cache dtype {dtype[:64]!r} is not known: expected auto, {known}")
        return found


def cache_settings(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    accelerator: Accelerator,
    rules: KvCacheRules,
) -> CacheSettings:
    """The settings that the options, the release and the device amount to."""
    return CacheSettings(
        split=Split(tensor=parallelism.tensor),
        attention_dtype=resolve_cache_dtype(shape, options, rules),
        latent_dtype=resolve_cache_dtype(shape, options, rules, latent=True),
        model_bytes=_model_bytes(options),
        block_size=options.block_size,
        keeps_prefixes=_keeps_prefixes(shape, options, rules),
        drafts=options.speculative_tokens,
        retained=_retained_tokens(shape, options) if rules.retains_drafted else 0,
        latents=_latent_storage(shape, rules),
        row_multiple=rules.latent_row_multiple.get(accelerator.vendor, 1),
        blocks=rules.block_tokens(accelerator.arch),
        rules=rules,
    )


def resolve_cache_dtype(
    shape: ModelShape, options: EngineOptions, rules: KvCacheRules, latent: bool = False
) -> str:
    """The element type as asked for, else as the checkpoint declares it, else `auto`, the model's.

    Latent attention heeds what ModelOpt declares, not what others do: kv_cache_scheme is read in
    vllm/model_executor/layers/attention/attention.py only. What is declared goes by its long name,
    which not every attention kernel takes that takes `fp8` (FLASHMLA_SPARSE).
    """
    if shape.model_type in rules.own_dtype:
        return "auto"
    stored = shape.quantization
    if options.kv_cache_dtype != "auto" or stored is None or stored.kv_cache_bits is None:
        return options.kv_cache_dtype
    heeded = stored.method.startswith(tuple(rules.declared_by))
    if not heeded or (latent and not stored.method.startswith("modelopt")):
        return "auto"
    return _DECLARED.get(stored.kv_cache_bits, "auto")


def _model_bytes(options: EngineOptions) -> int:
    """Bytes of an element of the model's own type: 16 bits unless 32 are asked for by --dtype.

    A checkpoint in 32 bits is served in 16 (vllm/config/model.py _get_and_verify_dtype).
    """
    return DType.FLOAT32.size_bytes if options.dtype in ("float32", "float") else 2


def _latent_storage(shape: ModelShape, rules: KvCacheRules) -> LatentStorage:
    if shape.model_type in rules.expanded_latents:
        return LatentStorage.HEADS
    return LatentStorage.LATENT if rules.latent_cache else LatentStorage.PADDED_HEADS


def _keeps_prefixes(shape: ModelShape, options: EngineOptions, rules: KvCacheRules) -> bool:
    """Whether states are kept for later requests: as asked for, by default beside attention only.

    Source: vllm/config/model.py is_prefix_caching_supported.
    """
    if rules.state_prefixes is StatePrefixes.NEVER:
        return False
    if options.enable_prefix_caching is None:
        return rules.state_prefixes is StatePrefixes.DEFAULT and shape.attention_heads > 0
    return options.enable_prefix_caching


def _retained_tokens(shape: ModelShape, options: EngineOptions) -> int:
    """Tokens that layers which draft one after the other may have to read once more.

    Source: vllm/config/vllm.py num_prefill_lookahead_tokens, kv_cache_utils.get_kv_cache_configs.
    """
    drafting = min(len(shape.draft_layers), options.speculative_tokens)
    return options.speculative_tokens - 1 if drafting > 1 else 0
