"""The matrices of feed-forward blocks on one rank."""

from collections import Counter

import pytest

from tonnage.checkpoint.feed_forward_kinds import (
    DraftProjection,
    LayerEmbedding,
    ResidualStreams,
)
from tonnage.checkpoint.model import Experts, FeedForward, Mlp
from tonnage.fit.weights.feed_forward import feed_forward_matrices
from tonnage.fit.weights.matrix import Sharding, WeightPart

HIDDEN = 1024


def elements(block: FeedForward, sharding: Sharding) -> Counter[WeightPart]:
    """Weights and biases of one rank by part."""
    counted: Counter[WeightPart] = Counter()
    for matrix in feed_forward_matrices(block, HIDDEN, sharding):
        counted[matrix.part] += matrix.elements + matrix.copies * matrix.biases
    return counted


BLOCKS: list[tuple[str, FeedForward, dict[WeightPart, int]]] = [
    ("three matrices", Mlp(4096), {WeightPart.MLP: 3 * HIDDEN * 1024}),
    ("two matrices", Mlp(4096, gated=False), {WeightPart.MLP: 2 * HIDDEN * 1024}),
    ("biases, that of the output whole", Mlp(4096, gated=False, bias=True),
     {WeightPart.MLP: 2 * HIDDEN * 1024 + 1024 + HIDDEN}),
    ("a whole one", Mlp(4096, gated=False, whole=True), {WeightPart.MLP: 2 * HIDDEN * 4096}),
    ("experts and a whole router", Experts(8, 2, 512),
     {WeightPart.EXPERTS: 8 * 3 * HIDDEN * 128, WeightPart.ROUTER: 8 * HIDDEN}),
    ("a router with a correction", Experts(8, 2, 512, router_bias=True),
     {WeightPart.EXPERTS: 8 * 3 * HIDDEN * 128, WeightPart.ROUTER: 8 * HIDDEN + 8}),
    ("a router with idle choices", Experts(8, 2, 512, idle_count=4),
     {WeightPart.EXPERTS: 8 * 3 * HIDDEN * 128, WeightPart.ROUTER: 12 * HIDDEN}),
    ("an embedding for each layer", LayerEmbedding(256, 4000),
     {WeightPart.EMBEDDINGS: 1000 * 256, WeightPart.MLP: HIDDEN * (64 + 2 * 256),
      WeightPart.NORMS: HIDDEN}),
    ("several hidden states", ResidualStreams(4, 64),
     {WeightPart.MLP: 2 * HIDDEN * 16 + 4 * (HIDDEN + 4 + 16), WeightPart.NORMS: 3 * HIDDEN}),
    ("a draft's projection", DraftProjection(), {WeightPart.MLP: HIDDEN * 2 * HIDDEN}),
    ("a draft's projection, split", DraftProjection(sharded=True),
     {WeightPart.MLP: 256 * 2 * HIDDEN}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "block", "want"), BLOCKS)
def test_one_of_four_ranks(what: str, block: FeedForward, want: dict[WeightPart, int]) -> None:
    assert elements(block, Sharding(tensor=4)) == want, what


def test_expert_parallelism_shares_whole_experts_out() -> None:
    sharding = Sharding(tensor=4, data=2, expert_parallel=True)
    counted = elements(Experts(12, 2, 512, shared_intermediate_size=512), sharding)
    assert counted[WeightPart.EXPERTS] == 2 * 3 * HIDDEN * 512, "12 over 8 ranks, rounded up"
    assert counted[WeightPart.MLP] == 3 * HIDDEN * 128, "shared experts are split as an MLP is"


def test_the_mtp_projection_of_torch_is_never_quantised() -> None:
    (plain,) = feed_forward_matrices(DraftProjection(), HIDDEN, Sharding())
    (linear,) = feed_forward_matrices(DraftProjection(sharded=True), HIDDEN, Sharding())
    assert plain.name is None
    assert linear.name is not None
