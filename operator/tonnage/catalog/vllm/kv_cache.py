"""Rules of vLLM's KV cache by release, architecture and element type."""

from collections.abc import Mapping
from datetime import date
from enum import StrEnum
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.model import STRICT, Vendor
from tonnage.catalog.vllm.releases import parse_version


class LocalLayers(StrEnum):
    """In which models layers with a window or a chunk keep only its tokens.

    `none`: in none; they keep every token. `alike`: in models where all layers are of this kind.
    `grouped`: also in models with other layers (the hybrid KV cache manager).
    """

    NONE = "none"
    ALIKE = "alike"
    GROUPED = "grouped"


class StatePrefixes(StrEnum):
    """Whether vLLM keeps states for later requests with the same prefix (prefix caching).

    `never`: not even with the option. `asked`: only with the option. `default`: unless it is off.
    """

    NEVER = "never"
    ASKED = "asked"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, config=STRICT)
class CacheDtype:
    """Size of cached elements: `bits` each, and their scales.

    `scale_bytes` for a head's keys and the same for its values, or one byte per `group` elements.
    """

    bits: int
    scale_bytes: int = 0
    group: int | None = None

    def row_bytes(self, elements: int) -> int:
        """Bytes of `elements` elements of one head: its keys, its values, or a latent."""
        groups = elements // self.group if self.group else 0
        return -(-elements * self.bits // 8) + groups + self.scale_bytes


@dataclass(frozen=True, slots=True, config=STRICT)
class BlockTokens:
    """Tokens of one block without --block-size, by the content that the attention backend stores.

    `packs_sparse`: cache dtypes for which sparse latent attention stores a packed row.
    """

    attention: int
    latent: int
    quantized_latent: int
    sparse_latent: int
    compressed: int
    block_sparse: int
    packs_sparse: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False, config=STRICT)
class KvCacheRules:
    """How one release plans the KV cache; kv_cache.yaml explains the fields.

    Equality is identity: rules are loaded once and are keys of caches on the hot path.
    """

    local_layers: LocalLayers
    groups_chunks: bool
    latent_cache: bool
    latent_row_multiple: Mapping[Vendor, int]
    group_slack: float
    null_blocks: int
    dense_packing: bool
    checks_stages_apart: bool
    retains_drafted: bool
    state_prefixes: StatePrefixes
    mamba2_checkpoints: int
    declared_by: frozenset[str]
    own_dtype: frozenset[str]
    expanded_latents: frozenset[str]
    dtypes: Mapping[str, CacheDtype]
    blocks: Mapping[str, BlockTokens]

    def block_tokens(self, arch: str) -> BlockTokens:
        """The blocks of an architecture, those of `default` for an unlisted one."""
        return self.blocks.get(arch, self.blocks["default"])


@dataclass(frozen=True, slots=True, config=STRICT)
class _KvCacheFile:
    """kv_cache.yaml: `releases` has changed fields by the first version that has them."""

    compiled: date
    dtypes: Mapping[str, CacheDtype]
    blocks: Mapping[str, BlockTokens]
    own_dtype: frozenset[str]
    expanded_latents: frozenset[str]
    releases: Mapping[str, Mapping[str, Any]]


@lru_cache(maxsize=64)
def kv_cache_rules(version: str) -> KvCacheRules:
    """How that vLLM release plans the KV cache.

    Raises ValueError for an invalid version, pydantic.ValidationError if kv_cache.yaml is invalid.
    """
    numbers = parse_version(version)
    rules = _load_rules()
    return rules[max(first for first in rules if first <= numbers)]


@lru_cache(maxsize=1)
def _load_rules() -> Mapping[tuple[int, ...], KvCacheRules]:
    """The rules by the parsed version of the first release that has them."""
    file = TypeAdapter(_KvCacheFile).validate_python(read_data_file("kv_cache.yaml"))
    adapter = TypeAdapter(KvCacheRules)
    fields: dict[str, Any] = {
        "dtypes": file.dtypes,
        "blocks": file.blocks,
        "own_dtype": file.own_dtype,
        "expanded_latents": file.expanded_latents,
    }
    rules = {}
    for version, changed in sorted(
        file.releases.items(), key=lambda entry: parse_version(entry[0])
    ):
        fields |= changed
        rules[parse_version(version)] = adapter.validate_python(fields)
    return rules
