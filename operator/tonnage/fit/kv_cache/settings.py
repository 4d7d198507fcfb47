"""Settings of the KV cache that do not follow from the model alone."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.kv_cache import BlockTokens, CacheDtype, KvCacheRules, StatePrefixes
from tonnage.checkpoint.model import DType, ModelShape
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights.matrix import Sharding

_DECLARED_DTYPES: Final = {8: "fp8_e4m3", 4: "nvfp4"}
"""Element types by the bits that a checkpoint declares: MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP."""


class LatentStorage(StrEnum):
    """What vLLM caches of latent attention: the latent, or keys and values of every head.

    `padded_heads`: padded to the head size that attention kernels supported then.
    """

    LATENT = "latent"
    HEADS = "heads"
    PADDED_HEADS = "padded_heads"


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """How one rank caches the layers of one model.

    `attention_dtype` is the element type of keys and values, `latent_dtype` that of latents;
    `model_bytes` is the size of an element in the model's own type. With `keeps_prefixes` vLLM
    keeps states for other requests. `speculative_tokens` are drafted in a step, `lookahead_tokens`
    are kept beyond a window for them. vLLM rounds the bytes of a latent up to `row_multiple`.
    """

    sharding: Sharding
    attention_dtype: str
    latent_dtype: str
    model_bytes: int
    block_size: int | None
    keeps_prefixes: bool
    speculative_tokens: int
    lookahead_tokens: int
    latents: LatentStorage
    row_multiple: int
    blocks: BlockTokens
    rules: KvCacheRules

    def element(self, dtype: str) -> CacheDtype:
        """Element sizes of a resolved type. Raises ValueError for an unknown one."""
        if dtype == "auto":
            return CacheDtype(bits=8 * self.model_bytes)
        cache_dtype = self.rules.dtypes.get(dtype)
        if cache_dtype is None:
            known = ", ".join(sorted(self.rules.dtypes))
            raise ValueError(f"KV cache dtype {dtype[:64]!r} is not known: expected auto, {known}")
        return cache_dtype


def cache_settings(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    accelerator: Accelerator,
    rules: KvCacheRules,
) -> CacheSettings:
    """The settings from the model, the options, the release and the device."""
    return CacheSettings(
        sharding=Sharding(tensor=parallelism.tensor),
        attention_dtype=resolve_cache_dtype(shape, options, rules),
        latent_dtype=resolve_cache_dtype(shape, options, rules, latent=True),
        model_bytes=_model_bytes(options),
        block_size=options.block_size,
        keeps_prefixes=_keeps_prefixes(shape, options, rules),
        speculative_tokens=options.speculative_tokens,
        lookahead_tokens=_lookahead_tokens(shape, options) if rules.retains_drafted else 0,
        latents=_latent_storage(shape, rules),
        row_multiple=rules.latent_row_multiple.get(accelerator.vendor, 1),
        blocks=rules.block_tokens(accelerator.arch),
        rules=rules,
    )


def resolve_cache_dtype(
    shape: ModelShape, options: EngineOptions, rules: KvCacheRules, latent: bool = False
) -> str:
    """The element type: the option, else the checkpoint's declaration, else `auto`, the model's.

    Latent attention follows declarations of ModelOpt only: kv_cache_scheme is read in
    vllm/model_executor/layers/attention/attention.py only. A declared type has its long name, which
    some attention kernels refuse although they take `fp8` (FLASHMLA_SPARSE).
    """
    if shape.model_type in rules.own_dtype:
        return "auto"
    checkpoint = shape.quantization
    if options.kv_cache_dtype != "auto" or checkpoint is None or checkpoint.kv_cache_bits is None:
        return options.kv_cache_dtype
    is_read = checkpoint.method.startswith(tuple(rules.declared_by))
    if not is_read or (latent and not checkpoint.method.startswith("modelopt")):
        return "auto"
    return _DECLARED_DTYPES.get(checkpoint.kv_cache_bits, "auto")


def _model_bytes(options: EngineOptions) -> int:
    """Bytes of an element in the model's own type: 16 bits unless --dtype is float32.

    vLLM serves a checkpoint in 32 bits with 16 (vllm/config/model.py _get_and_verify_dtype).
    """
    return DType.FLOAT32.size_bytes if options.dtype in ("float32", "float") else 2


def _latent_storage(shape: ModelShape, rules: KvCacheRules) -> LatentStorage:
    if shape.model_type in rules.expanded_latents:
        return LatentStorage.HEADS
    return LatentStorage.LATENT if rules.latent_cache else LatentStorage.PADDED_HEADS


def _keeps_prefixes(shape: ModelShape, options: EngineOptions, rules: KvCacheRules) -> bool:
    """Whether vLLM keeps states for later requests: the option; by default only with attention.

    Source: vllm/config/model.py is_prefix_caching_supported.
    """
    if rules.state_prefixes is StatePrefixes.NEVER:
        return False
    if options.enable_prefix_caching is None:
        return rules.state_prefixes is StatePrefixes.DEFAULT and shape.attention_heads > 0
    return options.enable_prefix_caching


def _lookahead_tokens(shape: ModelShape, options: EngineOptions) -> int:
    """Tokens that MTP layers that run one after the other may have to read again.

    Source: vllm/config/vllm.py num_prefill_lookahead_tokens, kv_cache_utils.get_kv_cache_configs.
    """
    mtp_layers = min(len(shape.draft_layers), options.speculative_tokens)
    return options.speculative_tokens - 1 if mtp_layers > 1 else 0
