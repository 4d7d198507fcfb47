"""The weight matrices that one rank holds: how vLLM 0.32.0 shards, replicates and pads layers.

Sources: vllm/model_executor/layers/linear.py (QKVParallelLinear, ColumnParallelLinear,
RowParallelLinear), layers/vocab_parallel_embedding.py, and the model classes named beside the
blocks in mixer_tensors.py and feed_forward_tensors.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from tonnage.checkpoint.model import DecoderLayer, ModelShape, Quantization
from tonnage.fit.feed_forward_tensors import feed_forward_matrices
from tonnage.fit.matrix import Matrix, Split, WeightPart
from tonnage.fit.mixer_tensors import mixer_matrices

VOCABULARY_MULTIPLE: Final = 64
"""The vocabulary is padded to it: vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE."""

WHOLE: Final = Split()
"""One rank that holds everything: the model as it lies on disk."""


@lru_cache(maxsize=1024)
def rank_matrices(
    shape: ModelShape, split: Split, loaded: Quantization | None
) -> tuple[Matrix, ...]:
    """Every weight matrix that a rank of pipeline stage `split.stage` holds after loading.

    `loaded` is how quantised layers lie in memory, None for 16 bits.
    """
    return (
        *_embeddings(shape, split),
        *_layers(shape, split, loaded),
        *_towers(shape, split),
    )


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


def stage_layers(shape: ModelShape, split: Split) -> Mapping[DecoderLayer, int]:
    """How many layers of each kind lie on pipeline stage `split.stage`.

    Source: vllm/distributed/utils.py get_pp_indices: what does not divide goes to the stages before
    the last, from the back.
    """
    if split.pipeline == 1:
        return shape.layer_counts
    each, rest = divmod(shape.layers, split.pipeline)
    sizes = [each] * split.pipeline
    for position in range(2, rest + 2):
        sizes[-position] += 1
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


def _embeddings(shape: ModelShape, split: Split) -> Iterator[Matrix]:
    """Embeddings and head; with pipeline stages the first has one, the last the other."""
    padded = -(-shape.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    rows, hidden = split.shard(padded), shape.hidden_size
    first, last = split.stage == 0, split.stage == split.pipeline - 1
    if first or (last and shape.tie_word_embeddings):
        yield Matrix(WeightPart.EMBEDDINGS, None, rows, hidden)
    if last and not shape.tie_word_embeddings:
        yield Matrix(WeightPart.LM_HEAD, None, rows, hidden)
    if first and shape.position_embeddings:
        yield Matrix(WeightPart.EMBEDDINGS, None, shape.position_embeddings, hidden)
    if last:
        yield Matrix(WeightPart.NORMS, None, hidden, 1)


def _layers(shape: ModelShape, split: Split, loaded: Quantization | None) -> Iterator[Matrix]:
    for layer, count in stage_layers(shape, split).items():
        for matrix in layer_matrices(layer, shape.hidden_size, split, loaded):
            yield matrix.times(count)


def _towers(shape: ModelShape, split: Split) -> Iterator[Matrix]:
    if split.stage:
        return
    for tower in shape.towers:
        sharded = (
            tower.sharded_elements if split.whole_towers else split.shard(tower.sharded_elements)
        )
        yield Matrix(WeightPart.TOWERS, None, sharded + tower.replicated_elements, 1)
