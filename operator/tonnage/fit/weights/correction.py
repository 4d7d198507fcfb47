"""Corrects weights that the config does not determine by the files of a checkpoint.

The sources, most exact first: the tensors in the headers of the files, the total of their sizes,
the config alone. A less exact source never changes what the config determines: a total corrects
only the rest.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from tonnage.checkpoint.model import Checkpoint, ModelShape
from tonnage.checkpoint.tensor_table import BITS_BY_DTYPE, StoredTensor, TensorTable
from tonnage.fit.weights.matrix import WeightPart
from tonnage.fit.weights.precision import COMPUTE_BYTES, matrix_bytes
from tonnage.fit.weights.tensors import WHOLE, rank_matrices

AGREEMENT: Final = Fraction(1, 200)
"""Sizes that differ by less agree: printed sizes are rounded, vocabularies padded."""

_MIN_FACTOR, _MAX_FACTOR = Fraction(1, 8), 4
"""Bounds of the real size of linear layers over the config's: from 2 bits to 64."""

_LINEAR: Final = (WeightPart.ATTENTION, WeightPart.MLP, WeightPart.EXPERTS)
_ALWAYS_LOADED: Final = (
    WeightPart.ENCODERS,
    WeightPart.EMBEDDINGS,
    WeightPart.ROUTER,
    WeightPart.NORMS,
)
"""Parts that vLLM loads even if the config does not mention them."""


@dataclass(frozen=True, slots=True)
class WeightCorrection:
    """Changes to the weights of a rank: `factors` by part, and bytes to add.

    All ranks share `shared_bytes`; each holds `replicated_bytes`.
    """

    factors: tuple[tuple[WeightPart, Fraction], ...] = ()
    shared_bytes: int = 0
    replicated_bytes: int = 0

    def apply(self, parts: Mapping[WeightPart, int], ranks: int) -> int:
        """The corrected bytes of one of `ranks` ranks with these weights by part."""
        factors = dict(self.factors)
        scaled = sum(-(-size * factors.get(part, 1) // 1) for part, size in parts.items())
        return int(scaled) + -(-self.shared_bytes // ranks) + self.replicated_bytes


NO_CORRECTION: Final = WeightCorrection()
"""The config is right, or no better source exists."""


def derive_weight_correction(checkpoint: Checkpoint) -> WeightCorrection:
    """The correction from the most exact source that the checkpoint has."""
    if checkpoint.tensors is not None:
        return _from_tensors(checkpoint.shape, checkpoint.tensors)
    if checkpoint.weights_bytes is not None:
        return _from_total(checkpoint.shape, checkpoint.weights_bytes)
    return NO_CORRECTION


def contradiction(checkpoint: Checkpoint) -> str | None:
    """Why the size of the files is ignored, None if it is used or not needed."""
    stated, expected = checkpoint.weights_bytes, sum(stored_parts(checkpoint.shape).values())
    if checkpoint.tensors is not None or stated is None:
        return None
    if (
        abs(stated - expected) <= expected * AGREEMENT
        or derive_weight_correction(checkpoint) != NO_CORRECTION
    ):
        return None
    return (
        f"the size of {stated / 2**30:.2f} GiB is ignored: by its config.json the model has "
        f"{expected / 2**30:.2f} GiB"
    )


@lru_cache(maxsize=256)
def stored_parts(shape: ModelShape) -> Mapping[WeightPart, int]:
    """Bytes of all tensors on disk by part, as the config describes them."""
    return _config_parts(shape, shape.dtype.size_bytes)


@lru_cache(maxsize=256)
def _from_tensors(shape: ModelShape, tensors: TensorTable) -> WeightCorrection:
    """Scales each part to its tensors; tensors of no part count as replicated, to be safe."""
    expected, actual = _config_parts(shape, COMPUTE_BYTES), _tensor_parts(shape, tensors)
    extra = actual.pop(None, 0)
    if 2 * actual.total() < sum(expected.values()):
        return _from_total(shape, tensors.total_bytes)  # unknown naming scheme
    extra += sum(actual[part] for part in _ALWAYS_LOADED if part not in expected)
    if any(bool(actual[part]) != (part in expected) for part in _LINEAR):
        factors = _common_factor(expected, actual)  # the names map to wrong parts
    else:
        factors = {part: Fraction(actual[part], size) for part, size in expected.items() if size}
    wrong = {
        part: factor for part, factor in factors.items() if factor and abs(factor - 1) > AGREEMENT
    }
    return WeightCorrection(tuple(wrong.items()), replicated_bytes=extra)


def _common_factor(
    expected: Mapping[WeightPart, int], actual: Mapping[WeightPart | None, int]
) -> Mapping[WeightPart, Fraction]:
    """A common factor for all linear layers of the decoder."""
    size = sum(expected.get(part, 0) for part in _LINEAR)
    factor = Fraction(sum(actual[part] for part in _LINEAR), size) if size else Fraction(1)
    return dict.fromkeys(_LINEAR, factor)


def _config_parts(shape: ModelShape, element_bytes: int) -> Mapping[WeightPart, int]:
    """Bytes by part from the config, every unquantised weight with `element_bytes`."""
    parts: Counter[WeightPart] = Counter()
    for matrix in rank_matrices(shape, WHOLE, shape.quantization, with_mtp=True):
        parts[matrix.part] += matrix_bytes(replace(matrix, element_bytes=None), element_bytes)
    return parts


def _tensor_parts(shape: ModelShape, tensors: TensorTable) -> Counter[WeightPart | None]:
    """Bytes in memory by part, None for tensors of no part."""
    actual: Counter[WeightPart | None] = Counter()
    for row in tensors.rows:
        part, mtp_count = _classify(row.name), 0
        if part not in (WeightPart.ENCODERS, WeightPart.MTP):
            mtp_count = row.count_from(shape.layers)
            is_shared = part in (WeightPart.EMBEDDINGS, WeightPart.LM_HEAD)
            actual[WeightPart.MTP] += 0 if is_shared else mtp_count * _loaded_bytes(row)
        if _is_loaded(row.name):
            actual[part] += (row.count_from(0) - mtp_count) * _loaded_bytes(row)
    return actual


def _loaded_bytes(row: StoredTensor) -> int:
    """Bytes of one tensor in memory: vLLM loads 32-bit weights in 16 bits, scales unchanged."""
    bits = BITS_BY_DTYPE[row.dtype]
    is_weight = row.name.endswith((".weight", ".bias")) and row.dtype in ("F32", "F64")
    return row.elements * (8 * COMPUTE_BYTES if is_weight else bits) // 8


def _is_loaded(name: str) -> bool:
    return not name.endswith((".inv_freq", ".masked_bias", ".attn.bias"))


_ENCODER_NAME: Final = re.compile(
    r"(^|\.)(visual|vision\w*|vit|vpm|resampler|audio\w*|sound\w*|embed_(vision|audio)|img_\w+"
    r"|image_\w+|mm_projector|multi_modal_projector|projector|patch_merger|connector|aligner"
    r"|mlp1|vision_language_adapter|pre_mm_projector_norm)\."
)
_PART_NAMES: Final = (
    (WeightPart.MTP, re.compile(r"(^|\.)(mtp\w*|nextn\w*|eh_proj|enorm|hnorm)\.")),
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


def _classify(name: str) -> WeightPart | None:
    """The part that a tensor belongs to by its name, None if the name matches none."""
    if _ENCODER_NAME.search(name) and "language_model." not in name:
        return WeightPart.ENCODERS
    return next((part for part, pattern in _PART_NAMES if pattern.search(name)), None)


@lru_cache(maxsize=1024)
def _from_total(shape: ModelShape, total_bytes: int) -> WeightCorrection:
    """Scales the linear layers so that the sum equals the total."""
    expected = stored_parts(shape)
    expected_bytes = sum(expected.values())
    difference = total_bytes - expected_bytes
    difference_without_mtp = difference + expected.get(WeightPart.MTP, 0)
    if min(abs(difference), abs(difference_without_mtp)) <= expected_bytes * AGREEMENT:
        return NO_CORRECTION
    if 5 * total_bytes >= 9 * expected_bytes:
        # The files hold each weight twice, or in 32 bits although the config says 16.
        return NO_CORRECTION
    if shape.quantization is None and difference > 0:
        return _from_surplus(shape, difference)
    is_quantized = 4 * total_bytes < 3 * expected_bytes  # perhaps not declared in the config
    if shape.quantization is None and not is_quantized:
        return NO_CORRECTION
    linear_bytes = sum(expected.get(part, 0) for part in _LINEAR)
    factor = Fraction(linear_bytes + difference, linear_bytes) if linear_bytes else Fraction(0)
    if not _MIN_FACTOR <= factor <= _MAX_FACTOR:
        return NO_CORRECTION
    return WeightCorrection(tuple((part, factor) for part in _LINEAR))


def _from_surplus(shape: ModelShape, difference: int) -> WeightCorrection:
    """A 16-bit model whose files repeat a tied head or hold bytes that the config does not have."""
    head = shape.vocab_size * shape.hidden_size * shape.dtype.size_bytes
    if shape.tie_word_embeddings and abs(difference - head) <= head * AGREEMENT:
        return NO_CORRECTION
    loaded = difference * COMPUTE_BYTES // shape.dtype.size_bytes
    return WeightCorrection(shared_bytes=loaded)
