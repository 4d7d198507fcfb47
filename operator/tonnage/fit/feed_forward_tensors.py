"""The weight matrices of MLPs and experts, as one rank holds them."""

from collections.abc import Iterator

from tonnage.catalog.engine import ExpertPadding
from tonnage.checkpoint.model import Experts, FeedForward, Mlp
from tonnage.fit.matrix import Matrix, Split, WeightPart


def feed_forward_matrices(block: FeedForward, hidden: int, split: Split) -> Iterator[Matrix]:
    """The matrices of one block in a model of width `hidden`."""
    match block:
        case Mlp():
            return _mlp(block, hidden, split)
        case Experts():
            return _experts(block, hidden, split)


def _mlp(block: Mlp, hidden: int, split: Split) -> Iterator[Matrix]:
    inner, part = split.shard(block.intermediate_size), WeightPart.MLP
    biased = 1 if block.bias else 0
    if block.gated:
        yield Matrix(part, "mlp.gate_proj", inner, hidden, biases=biased * inner)
    yield Matrix(part, "mlp.up_proj", inner, hidden, biases=biased * inner)
    bias = biased * hidden
    yield Matrix(part, "mlp.down_proj", hidden, inner, row_parallel=True, biases=bias)


def _experts(block: Experts, hidden: int, split: Split) -> Iterator[Matrix]:
    """Every expert is sharded, or with expert parallelism each rank has whole ones.

    Source: vllm/model_executor/layers/fused_moe/layer.py.
    """
    whole = split.expert_parallel
    count = -(-block.count // (split.tensor * split.data)) if whole else block.count
    inner = block.intermediate_size if whole else split.shard(block.intermediate_size)
    wide, long = _padded(hidden, inner, split.expert_padding)
    up = 2 * long if block.gated else long
    part, name = WeightPart.EXPERTS, "mlp.experts.0.down_proj"
    biased = 1 if block.bias else 0
    yield Matrix(part, name, up, wide, count, biases=biased * up)
    yield Matrix(part, name, wide, long, count, row_parallel=not whole, biases=biased * wide)
    yield from _shared_experts(block, hidden, split)
    yield Matrix(WeightPart.ROUTER, None, block.count, hidden, element_bytes=block.router_bytes)


def _shared_experts(block: Experts, hidden: int, split: Split) -> Iterator[Matrix]:
    if not block.shared_intermediate_size:
        return
    inner, name = split.shard(block.shared_intermediate_size), "mlp.shared_experts.down_proj"
    yield Matrix(WeightPart.MLP, name, 2 * inner if block.gated else inner, hidden)
    yield Matrix(WeightPart.MLP, name, hidden, inner, row_parallel=True)
    if block.shared_gate:
        yield Matrix(WeightPart.ROUTER, None, 1, hidden)


def _padded(hidden: int, inner: int, padding: ExpertPadding | None) -> tuple[int, int]:
    if padding is None:
        return hidden, inner
    rounded_hidden = -(-hidden // padding.hidden) * padding.hidden
    return rounded_hidden, -(-inner // padding.intermediate) * padding.intermediate
