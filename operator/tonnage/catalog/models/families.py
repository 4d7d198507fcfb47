"""Properties of model families that their config.json omits."""

from collections.abc import Mapping
from typing import Final, Literal

from pydantic.dataclasses import dataclass

from tonnage.catalog.model import STRICT


@dataclass(frozen=True, slots=True, config=STRICT)
class Family:
    """The conventions of one `model_type`; the field defaults are Llama's.

    Embeddings: `tied` ones also serve as output head, but with `own_head` vLLM builds a head even
    for a config that ties them; `position_rows`, rows of a learned position table beyond the
    longest context, None without such a table.
    Layers: `twofold` layers have attention and MLP twice, and experts once.
    Norms: `norms` of the hidden width in a layer, with `norm_biases` two vectors each;
    `qk_norm` of queries and keys over one head, or over the whole width, None without.
    Projections: whether those of attention and the MLP add biases; `output_bias` None: as
    `qkv_bias`. An ungated MLP has two matrices instead of three. `joint_mlp`: the MLP's size in the
    config is that of gate and up projection together. `gated_attention` multiplies the output by a
    gate that the query projection also computes. `whole_mlp`: every rank holds the whole MLP.
    Windows: each `window_every`-th (`chunk_every`-th) layer attends to all tokens, the others to a
    window (a chunk).
    Experts: `router_bytes` of a router weight, `router_bias` for one bias per expert, `expert_bias`
    for biases of the experts' own layers.
    Rotary embedding: `rotary` is the rotated part of a head, `rope_bytes` the size of a table entry
    (None: an element of the model), `rope_positions` the table's length over the longest context
    with several position axes, `window_rope` a separate table for layers with a window.
    MTP: `drafts` is the number of MTP layers. `sharded_draft`: tensor parallelism shards their
    input projection; `dense_draft`: they have an MLP where the others have experts.
    """

    tied: bool = False
    own_head: bool = False
    position_rows: int | None = None
    twofold: bool = False
    norms: int = 2
    norm_biases: bool = False
    qk_norm: Literal["head", "width"] | None = None
    qkv_bias: bool = False
    output_bias: bool | None = None
    mlp_bias: bool = False
    gated_mlp: bool = True
    whole_mlp: bool = False
    joint_mlp: bool = False
    gated_attention: bool = False
    window_every: int | None = None
    chunk_every: int | None = None
    router_bytes: int = 2
    router_bias: bool = False
    expert_bias: bool = False
    rotary: float = 1.0
    rope_bytes: int = 2
    rope_positions: int = 4
    window_rope: bool = False
    sharded_draft: bool = False
    dense_draft: bool = False
    drafts: int = 0


_DEFAULT_FAMILY: Final = Family()


@dataclass(frozen=True, slots=True, config=STRICT)
class Families:
    """Families by `model_type`.

    `vision_defaults`, `audio_defaults`: fields of a family's encoders that configs may omit.
    """

    types: Mapping[str, Family]
    vision_defaults: Mapping[str, Mapping[str, int]]
    audio_defaults: Mapping[str, Mapping[str, int]]

    def of(self, model_type: str) -> Family:
        """The family of that name, the default family if it is unknown."""
        return self.types.get(model_type, _DEFAULT_FAMILY)
