"""The weight matrices on one rank: how vLLM 0.32.0 shards, replicates and pads layers.

Sources: vllm/model_executor/layers/linear.py (QKVParallelLinear, ColumnParallelLinear,
RowParallelLinear), layers/vocab_parallel_embedding.py, and the model classes named with the
blocks in mixer_tensors.py and feed_forward_tensors.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from tonnage.catalog.vllm.parallelism import load_split_rules
from tonnage.checkpoint.model import DecoderLayer, Experts, ModelShape, Quantization
from tonnage.checkpoint.quantization.module_names import EXPERTS
from tonnage.fit.weights.attention import mixer_matrices
from tonnage.fit.weights.feed_forward import feed_forward_matrices
from tonnage.fit.weights.matrix import FLOAT32_BYTES, Matrix, Sharding, WeightPart

_VOCABULARY_MULTIPLE: Final = 64
"""The vocabulary is padded to it: vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE."""

_ENCODER_WIDTH: Final = 1024
"""Approximate width of an encoder's layers, which gives the number of scales."""

WHOLE: Final = Sharding()
"""One rank that holds the whole model, as the files do."""


@lru_cache(maxsize=1024)
def rank_matrices(
    shape: ModelShape, sharding: Sharding, loaded: Quantization | None, with_mtp: bool = False
) -> tuple[Matrix, ...]:
    """Every weight matrix that a rank of pipeline stage `sharding.stage` holds after loading.

    `loaded` is the quantisation in memory, None for 16 bits. With `with_mtp` the MTP layers are
    loaded too.
    """
    return (
        *_embedding_matrices(shape, sharding, loaded),
        *_decoder_matrices(shape, sharding, loaded),
        *_encoder_matrices(shape, sharding, loaded),
        *(mtp_matrices(shape, sharding, loaded) if with_mtp else ()),
    )


def mtp_matrices(
    shape: ModelShape, sharding: Sharding, loaded: Quantization | None
) -> Iterator[Matrix]:
    """The matrices of MTP layers, on the last pipeline stage.

    Source: vllm/v1/spec_decode/llm_base_proposer.py: MTP layers share embeddings and output head.
    """
    if sharding.stage < sharding.pipeline - 1:
        return
    for layer in shape.draft_layers:
        for matrix in layer_matrices(layer, shape.hidden_size, sharding, loaded):
            yield replace(matrix, part=WeightPart.MTP)


def layer_matrices(
    layer: DecoderLayer, hidden: int, sharding: Sharding, loaded: Quantization | None
) -> Iterator[Matrix]:
    """The matrices of one layer, each with its quantisation."""
    exceptions = dict(layer.exceptions)
    for mixer in layer.mixers:
        yield from _quantize(mixer_matrices(mixer, hidden, sharding), loaded, exceptions)
    for block in layer.feed_forwards:
        yield from _quantize(feed_forward_matrices(block, hidden, sharding), loaded, exceptions)
    yield Matrix(WeightPart.NORMS, None, layer.norm_elements, 1)
    if layer.float32_elements:
        yield Matrix(WeightPart.NORMS, None, layer.float32_elements, 1, element_bytes=FLOAT32_BYTES)


def expert_format(shape: ModelShape, loaded: Quantization | None) -> Quantization | None:
    """The quantisation of the model's experts in memory, None in 16 bits or without experts."""
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
    """The number of layers on each pipeline stage.

    Source: vllm/distributed/utils.py get_pp_indices: the remainder goes to the stages before the
    last, from the back.
    """
    quotient, remainder = divmod(layers, stages)
    sizes = [quotient] * stages
    for position in range(2, remainder + 2):
        sizes[-position] += 1
    return tuple(sizes)


def stage_layers(shape: ModelShape, sharding: Sharding) -> Mapping[DecoderLayer, int]:
    """The number of layers of each kind on pipeline stage `sharding.stage`."""
    if sharding.pipeline == 1:
        return shape.layer_counts
    division = sharding.division
    sizes = division.sizes if division else stage_sizes(shape.layers, sharding.pipeline)
    start = sum(sizes[: sharding.stage])
    counts = Counter(shape.layer_order[start : start + sizes[sharding.stage]])
    return {shape.layer_kinds[kind]: count for kind, count in counts.items()}


def _quantize(
    matrices: Iterator[Matrix],
    loaded: Quantization | None,
    exceptions: Mapping[str, Quantization | None],
) -> Iterator[Matrix]:
    for matrix in matrices:
        if matrix.name is None or loaded is None:
            yield matrix
        elif matrix.name in exceptions:
            yield matrix.quantized_as(exceptions[matrix.name])
        elif loaded.experts_only and matrix.part is not WeightPart.EXPERTS:
            yield matrix
        else:
            yield matrix.quantized_as(loaded)


def _embedding_matrices(
    shape: ModelShape, sharding: Sharding, loaded: Quantization | None
) -> Iterator[Matrix]:
    """Embeddings and head; with pipeline stages the first has the embeddings, the last the head,
    but for classes that have them on all stages."""
    rows, hidden = sharding.shard(padded_vocabulary(shape)), shape.hidden_size
    first, last = sharding.stage == 0, sharding.stage == sharding.pipeline - 1
    rules, division = load_split_rules(), sharding.division
    if division is not None:
        has_head, has_embeddings = last or division.head_on_all, first
    else:
        has_head = last or shape.architecture in rules.head_on_all_stages
        has_embeddings = first or shape.architecture in rules.embeddings_on_all_stages
    if has_embeddings or (has_head and shape.tie_word_embeddings):
        yield Matrix(WeightPart.EMBEDDINGS, None, rows, hidden)
    if has_head and not shape.tie_word_embeddings:
        quantization = None if loaded is None else shape.lm_head
        yield Matrix(WeightPart.LM_HEAD, None, rows, hidden, quantization=quantization)
    if first and shape.position_embeddings:
        yield Matrix(WeightPart.EMBEDDINGS, None, shape.position_embeddings, hidden)
    if last:
        yield Matrix(WeightPart.NORMS, None, hidden, 1)
    if first and shape.stream_projections:
        streams = shape.stream_projections
        yield Matrix(WeightPart.EMBEDDINGS, None, sharding.shard(hidden), hidden, streams)


def _decoder_matrices(
    shape: ModelShape, sharding: Sharding, loaded: Quantization | None
) -> Iterator[Matrix]:
    for layer, count in stage_layers(shape, sharding).items():
        for matrix in layer_matrices(layer, shape.hidden_size, sharding, loaded):
            yield matrix.times(count)


def _encoder_matrices(
    shape: ModelShape, sharding: Sharding, loaded: Quantization | None
) -> Iterator[Matrix]:
    """Encoders are on every pipeline stage; quantisation while loading includes them."""
    online = loaded if shape.quantization is None else None
    for encoder in shape.encoders:
        elements = encoder.sharded_elements
        if not sharding.whole_encoders:
            elements = sharding.shard(elements)
        rows = -(-elements // _ENCODER_WIDTH)
        quantization = encoder.stored or online
        part = WeightPart.ENCODERS
        if quantization is None:
            yield Matrix(part, None, elements, 1)
        else:
            yield Matrix(part, None, rows, _ENCODER_WIDTH, quantization=quantization)
        yield Matrix(part, None, encoder.replicated_elements, 1)
