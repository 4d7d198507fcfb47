"""The weight matrices that one rank holds: how vLLM 0.32.0 shards, replicates and pads layers.

Sources: vllm/model_executor/layers/linear.py (QKVParallelLinear, ColumnParallelLinear,
RowParallelLinear), layers/vocab_parallel_embedding.py, and the model classes named beside the
blocks in mixer_tensors.py and feed_forward_tensors.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from tonnage.checkpoint.model import DecoderLayer, Experts, ModelShape, Quantization
from tonnage.checkpoint.module_names import EXPERTS
from tonnage.fit.feed_forward_tensors import feed_forward_matrices
from tonnage.fit.matrix import FLOAT32_BYTES, Matrix, Split, WeightPart
from tonnage.fit.mixer_tensors import mixer_matrices

_VOCABULARY_MULTIPLE: Final = 64
"""The vocabulary is padded to it: vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE."""

_TOWER_WIDTH: Final = 1024
"""About the width of an encoder's layers, which share out the scales of quantised ones."""

WHOLE: Final = Split()
"""One rank that holds everything: the model as it lies on disk."""


@lru_cache(maxsize=1024)
def rank_matrices(
    shape: ModelShape, split: Split, loaded: Quantization | None, drafting: bool = False
) -> tuple[Matrix, ...]:
    """Every weight matrix that a rank of pipeline stage `split.stage` holds after loading.

    `loaded` is how quantised layers lie in memory, None for 16 bits. With `drafting` the layers
    that predict ahead are loaded too.
    """
    return (
        *_embeddings(shape, split, loaded),
        *_layers(shape, split, loaded),
        *_towers(shape, split, loaded),
        *(draft_matrices(shape, split, loaded) if drafting else ()),
    )


def draft_matrices(
    shape: ModelShape, split: Split, loaded: Quantization | None
) -> Iterator[Matrix]:
    """The matrices of layers that predict ahead, on the last pipeline stage.

    Source: vllm/v1/spec_decode/llm_base_proposer.py: embeddings and output head are shared.
    """
    if split.stage < split.pipeline - 1:
        return
    for layer in shape.draft_layers:
        for matrix in layer_matrices(layer, shape.hidden_size, split, loaded):
            yield replace(matrix, part=WeightPart.DRAFT)


def layer_matrices(
    layer: DecoderLayer, hidden: int, split: Split, loaded: Quantization | None
) -> Iterator[Matrix]:
    """The matrices of one layer, each with how it is stored."""
    exceptions = dict(layer.exceptions)
    for mixer in layer.mixers:
        yield from _stored(mixer_matrices(mixer, hidden, split), loaded, exceptions)
    for block in layer.feed_forwards:
        yield from _stored(feed_forward_matrices(block, hidden, split), loaded, exceptions)
    yield Matrix(WeightPart.NORMS, None, layer.norm_elements, 1)
    if layer.float32_elements:
        yield Matrix(WeightPart.NORMS, None, layer.float32_elements, 1, element_bytes=FLOAT32_BYTES)


def expert_format(shape: ModelShape, loaded: Quantization | None) -> Quantization | None:
    """How the experts of the model lie in memory, None in 16 bits or without experts."""
    if loaded is None:
        return None
    for layer in shape.layer_kinds:
        if any(isinstance(block, Experts) for block in layer.feed_forwards):
            return dict(layer.exceptions).get(EXPERTS, loaded)
    return None


def padded_vocabulary(shape: ModelShape) -> int:
    """Rows of the embeddings and of the output head over all ranks."""
    return -(-shape.vocab_size // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE


def stage_sizes(layers: int, stages: int) -> tuple[int, ...]:
    """How many layers lie on each pipeline stage.

    Source: vllm/distributed/utils.py get_pp_indices: what does not divide goes to the stages before
    the last, from the back.
    """
    each, rest = divmod(layers, stages)
    sizes = [each] * stages
    for position in range(2, rest + 2):
        sizes[-position] += 1
    return tuple(sizes)


def stage_layers(shape: ModelShape, split: Split) -> Mapping[DecoderLayer, int]:
    """How many layers of each kind lie on pipeline stage `split.stage`."""
    if split.pipeline == 1:
        return shape.layer_counts
    sizes = stage_sizes(shape.layers, split.pipeline)
    start = sum(sizes[: split.stage])
    counted = Counter(shape.layer_order[start : start + sizes[split.stage]])
    return {shape.layer_kinds[kind]: count for kind, count in counted.items()}


def _stored(
    matrices: Iterator[Matrix],
    loaded: Quantization | None,
    exceptions: Mapping[str, Quantization | None],
) -> Iterator[Matrix]:
    for matrix in matrices:
        if matrix.name is None or loaded is None:
            yield matrix
        elif matrix.name in exceptions:
            yield matrix.stored_as(exceptions[matrix.name])
        elif loaded.experts_only and matrix.part is not WeightPart.EXPERTS:
            yield matrix
        else:
            yield matrix.stored_as(loaded)


def _embeddings(shape: ModelShape, split: Split, loaded: Quantization | None) -> Iterator[Matrix]:
    """Embeddings and head; with pipeline stages the first has one, the last the other."""
    rows, hidden = split.shard(padded_vocabulary(shape)), shape.hidden_size
    first, last = split.stage == 0, split.stage == split.pipeline - 1
    if first or (last and shape.tie_word_embeddings):
        yield Matrix(WeightPart.EMBEDDINGS, None, rows, hidden)
    if last and not shape.tie_word_embeddings:
        stored = None if loaded is None else shape.lm_head
        yield Matrix(WeightPart.LM_HEAD, None, rows, hidden, stored=stored)
    if first and shape.position_embeddings:
        yield Matrix(WeightPart.EMBEDDINGS, None, shape.position_embeddings, hidden)
    if last:
        yield Matrix(WeightPart.NORMS, None, hidden, 1)
    if first and shape.stream_projections:
        streams = shape.stream_projections
        yield Matrix(WeightPart.EMBEDDINGS, None, split.shard(hidden), hidden, streams)


def _layers(shape: ModelShape, split: Split, loaded: Quantization | None) -> Iterator[Matrix]:
    for layer, count in stage_layers(shape, split).items():
        for matrix in layer_matrices(layer, shape.hidden_size, split, loaded):
            yield matrix.times(count)


def _towers(shape: ModelShape, split: Split, loaded: Quantization | None) -> Iterator[Matrix]:
    """Encoders lie on the first stage; weights that are quantised while loading include them."""
    if split.stage:
        return
    while_loading = loaded if shape.quantization is None else None
    for tower in shape.towers:
        sharded = (
            tower.sharded_elements if split.whole_towers else split.shard(tower.sharded_elements)
        )
        rows = -(-sharded // _TOWER_WIDTH)
        stored = tower.stored or while_loading
        part = WeightPart.TOWERS
        if stored is None:
            yield Matrix(part, None, sharded, 1)
        else:
            yield Matrix(part, None, rows, _TOWER_WIDTH, stored=stored)
        yield Matrix(part, None, tower.replicated_elements, 1)
