"""What the files of a checkpoint tell about the weights that the config leaves open.

Three kinds of knowledge, the best first: the tensors themselves, from the headers of the files;
the total of their sizes; the config alone. What the config determines is never changed by less
exact knowledge: a total corrects only what it leaves open.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from tonnage.checkpoint.model import Checkpoint, ModelShape
from tonnage.checkpoint.stored_tensors import BITS_BY_DTYPE, StoredTensor, TensorTable
from tonnage.fit.matrix import WeightPart
from tonnage.fit.precision import COMPUTE_BYTES, matrix_bytes
from tonnage.fit.tensors import WHOLE, rank_matrices

AGREEMENT: Final = Fraction(1, 200)
"""Sizes that differ by less agree: printed ones are rounded, vocabularies padded."""

_SMALLEST, _LARGEST = Fraction(1, 8), 4
"""Linear layers that are so many times as large as the config says: from 2 bits to 64."""

_LINEAR: Final = (WeightPart.ATTENTION, WeightPart.MLP, WeightPart.EXPERTS)
_ADDED: Final = (WeightPart.TOWERS, WeightPart.EMBEDDINGS, WeightPart.ROUTER, WeightPart.NORMS)
"""Parts that are loaded even if the config does not mention them."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What to change about the weights of a rank: `factors` by part, and bytes to add.

    `shared_bytes` are split over all ranks, `replicated_bytes` lie on each.
    """

    factors: tuple[tuple[WeightPart, Fraction], ...] = ()
    shared_bytes: int = 0
    replicated_bytes: int = 0

    def apply(self, parts: Mapping[WeightPart, int], ranks: int) -> int:
        """Bytes of a rank whose weights by part are these, one of `ranks`."""
        factors = dict(self.factors)
        scaled = sum(-(-size * factors.get(part, 1) // 1) for part, size in parts.items())
        return int(scaled) + -(-self.shared_bytes // ranks) + self.replicated_bytes


NOTHING: Final = Correction()
"""The config tells it all, or all that is known."""


def correction_of(checkpoint: Checkpoint) -> Correction:
    """What the files tell about the weights beyond the config."""
    if checkpoint.tensors is not None:
        return _from_tensors(checkpoint.shape, checkpoint.tensors)
    if checkpoint.weights_bytes is not None:
        return _from_total(checkpoint.shape, checkpoint.weights_bytes)
    return NOTHING


def contradiction(checkpoint: Checkpoint) -> str | None:
    """Why the size of the files is not believed, None where it is or nothing depends on it."""
    stated, expected = checkpoint.weights_bytes, sum(stored_parts(checkpoint.shape).values())
    if checkpoint.tensors is not None or stated is None:
        return None
    if abs(stated - expected) <= expected * AGREEMENT or correction_of(checkpoint) != NOTHING:
        return None
    return (
        f"the size of {stated / 2**30:.2f} GiB is ignored: by its config.json the model has "
        f"{expected / 2**30:.2f} GiB"
    )


@lru_cache(maxsize=256)
def stored_parts(shape: ModelShape) -> Mapping[WeightPart, int]:
    """Bytes of all tensors on disk by part, as the config describes them."""
    return _parts(shape, shape.dtype.size_bytes)


@lru_cache(maxsize=256)
def _from_tensors(shape: ModelShape, tensors: TensorTable) -> Correction:
    """Each part as large as its tensors; what belongs to none is replicated, to be safe."""
    expected, found = _parts(shape, COMPUTE_BYTES), _found_parts(shape, tensors)
    extra = found.pop(None, 0)
    if 2 * found.total() < sum(expected.values()):
        return _from_total(shape, tensors.total_bytes)  # the names are strange
    extra += sum(found[part] for part in _ADDED if part not in expected)
    if any(bool(found[part]) != (part in expected) for part in _LINEAR):
        factors = _common_factor(expected, found)  # the names mean other parts than it seems
    else:
        factors = {part: Fraction(found[part], size) for part, size in expected.items() if size}
    wrong = {
        part: factor for part, factor in factors.items() if factor and abs(factor - 1) > AGREEMENT
    }
    return Correction(tuple(wrong.items()), replicated_bytes=extra)


def _common_factor(
    expected: Mapping[WeightPart, int], found: Mapping[WeightPart | None, int]
) -> Mapping[WeightPart, Fraction]:
    """One factor for all linear layers of the decoder."""
    size = sum(expected.get(part, 0) for part in _LINEAR)
    factor = Fraction(sum(found[part] for part in _LINEAR), size) if size else Fraction(1)
    return dict.fromkeys(_LINEAR, factor)


def _parts(shape: ModelShape, element_bytes: int) -> Mapping[WeightPart, int]:
    """Bytes by part with every unquantised weight of the same size."""
    parts: Counter[WeightPart] = Counter()
    for matrix in rank_matrices(shape, WHOLE, shape.quantization, drafting=True):
        parts[matrix.part] += matrix_bytes(replace(matrix, element_bytes=None), element_bytes)
    return parts


def _found_parts(shape: ModelShape, tensors: TensorTable) -> Counter[WeightPart | None]:
    """Bytes by part as they would lie in memory, None for what has no part."""
    found: Counter[WeightPart | None] = Counter()
    for row in tensors.rows:
        part, drafts = _part_of(row.name), 0
        if part not in (WeightPart.TOWERS, WeightPart.DRAFT):
            drafts = row.count_from(shape.layers)
            is_shared = part in (WeightPart.EMBEDDINGS, WeightPart.LM_HEAD)
            found[WeightPart.DRAFT] += 0 if is_shared else drafts * _loaded_bytes(row)
        if _is_loaded(row.name):
            found[part] += (row.count_from(0) - drafts) * _loaded_bytes(row)
    return found


def _loaded_bytes(row: StoredTensor) -> int:
    """Bytes of one tensor in memory: wide weights are loaded in 16 bits, scales as they are."""
    bits = BITS_BY_DTYPE[row.dtype]
    is_weight = row.name.endswith((".weight", ".bias")) and row.dtype in ("F32", "F64")
    return row.elements * (8 * COMPUTE_BYTES if is_weight else bits) // 8


def _is_loaded(name: str) -> bool:
    return not name.endswith((".inv_freq", ".masked_bias", ".attn.bias"))


_TOWER: Final = re.compile(
    r"(^|\.)(visual|vision\w*|vit|vpm|resampler|audio\w*|sound\w*|embed_(vision|audio)|img_\w+"
    r"|image_\w+|mm_projector|multi_modal_projector|projector|patch_merger|connector|aligner"
    r"|mlp1|vision_language_adapter|pre_mm_projector_norm)\."
)
_PARTS: Final = (
    (WeightPart.DRAFT, re.compile(r"(^|\.)(mtp\w*|nextn\w*|eh_proj|enorm|hnorm)\.")),
    (WeightPart.LM_HEAD, re.compile(r"(^|\.)(lm_head|output_head|shared_head\.head)\.|^output\.")),
    (
        WeightPart.EMBEDDINGS,
        re.compile(r"(^|\.)(embed_tokens\w*|wte|wpe|word_embeddings|tok_embeddings|embeddings?)\."),
    ),
    (
        WeightPart.ROUTER,
        re.compile(r"\.(gate|router|shared_expert_gate)\.|e_score_correction_bias"),
    ),
    (WeightPart.EXPERTS, re.compile(r"\.experts\.|\.experts_")),
    (WeightPart.NORMS, re.compile(r"norm|(^|\.)ln_", re.IGNORECASE)),
    (
        WeightPart.MLP,
        re.compile(r"\.(mlp|feed_forward|ffn|shared_experts?|shared_mlp|block_sparse_moe)\."),
    ),
    (
        WeightPart.ATTENTION,
        re.compile(r"attn|attention|\.(mixer|mamba|conv|indexer|compressor)\.|\.A_log|\.dt_bias"),
    ),
)


def _part_of(name: str) -> WeightPart | None:
    """The part a tensor of that name belongs to, None when the name does not say."""
    if _TOWER.search(name) and "language_model." not in name:
        return WeightPart.TOWERS
    return next((part for part, pattern in _PARTS if pattern.search(name)), None)


@lru_cache(maxsize=1024)
def _from_total(shape: ModelShape, total_bytes: int) -> Correction:
    """What a total tells: the parts that the config leaves open make up for the difference."""
    expected = stored_parts(shape)
    whole = sum(expected.values())
    difference = total_bytes - whole
    without_drafts = difference + expected.get(WeightPart.DRAFT, 0)
    if min(abs(difference), abs(without_drafts)) <= whole * AGREEMENT:
        return NOTHING
    if 5 * total_bytes >= 9 * whole:  # each weight twice, or in 32 bits where the config says 16
        return NOTHING
    if shape.quantization is None and difference > 0:
        return _larger(shape, difference)
    is_narrower = 4 * total_bytes < 3 * whole  # quantised, although the config does not say so
    if shape.quantization is None and not is_narrower:
        return NOTHING
    open_bytes = sum(expected.get(part, 0) for part in _LINEAR)
    factor = Fraction(open_bytes + difference, open_bytes) if open_bytes else Fraction(0)
    if not _SMALLEST <= factor <= _LARGEST:
        return NOTHING
    return Correction(tuple((part, factor) for part in _LINEAR))


def _larger(shape: ModelShape, difference: int) -> Correction:
    """More than a 16-bit model's config accounts for: a head that doubles, or something unknown."""
    head = shape.vocab_size * shape.hidden_size * shape.dtype.size_bytes
    if shape.tie_word_embeddings and abs(difference - head) <= head * AGREEMENT:
        return NOTHING
    loaded = difference * COMPUTE_BYTES // shape.dtype.size_bytes
    return Correction(shared_bytes=loaded)
