"""Weights and states of hybrids on one GPU, against what vLLM 0.32.0's own classes allocate."""

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.mixer_kinds import (
    CompressedAttention,
    DeltaAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    ShortConvolution,
)
from tonnage.checkpoint.model import (
    Attention,
    Checkpoint,
    DType,
    Experts,
    LinearAttention,
    Mixer,
    SparseIndexer,
    StateMixer,
)
from tonnage.fit.kv_cache.states import mixer_states, state_mixer_input, state_mixer_output
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights.attention import mixer_matrices
from tonnage.fit.weights.feed_forward import feed_forward_matrices
from tonnage.fit.weights.matrix import Sharding, WeightPart
from tonnage.fit.weights.tensors import WHOLE
from tonnage.fit.weights.total import weights_by_stage

CATALOG = load_catalog()
OPTIONS = EngineOptions("v0.32.0", 32768)

# Parameters and buffers of rank 0 when vLLM 0.32.0 builds the model for an H200.
LOADED: list[tuple[str, int, int]] = [
    ("nemotron-3-nano-nvfp4", 1, 19_323_958_320),
    ("nemotron-h-latent-experts", 1, 229_842_902_192),
    ("nemotron-h-latent-experts", 8, 29_445_673_520),
    ("jamba-v0.1", 1, 103_147_986_752),
    ("jamba-v0.1", 8, 12_895_813_440),
    ("granite-4.0-h-small", 1, 64_417_118_272),
    ("granite-4.0-h-small", 4, 16_179_219_520),
    ("falcon-h1-34b", 1, 67_322_283_648),
    ("falcon-h1-34b", 2, 33_678_662_016),
    ("mamba-codestral-7b", 1, 14_576_066_560),
    ("mamba-codestral-7b", 8, 1_822_474_240),
    ("falcon-mamba-7b", 1, 14_562_107_392),
    ("falcon-mamba-7b", 8, 1_820_729_344),
    ("lfm2-8b-a1b", 1, 16_696_246_624),
    ("lfm2-8b-a1b", 8, 2_104_069_472),
    ("ring-2.5-1t", 1, 2_024_814_681_248),
    ("ring-2.5-1t", 8, 253_994_257_568),
    ("mimo-v2-flash", 1, 617_723_261_568),
    ("mimo-v2-flash", 8, 77_459_153_264),
    ("step-3.5-flash", 1, 394_112_039_376),
    ("step-3.5-flash", 8, 49_526_208_976),
    ("kimi-linear-48b-a3b", 1, 98_247_508_108),
    ("kimi-linear-48b-a3b", 8, 24_122_537_932),
    ("kimi-k3-like", 1, 1_082_547_333_164),
    ("kimi-k3-like", 8, 183_856_364_492),
    ("glm-5.3-text", 1, 626_731_762_600),
    ("glm-5.3-text", 8, 78_920_566_248),
    ("minimax-m3", 1, 852_505_923_520),
    ("minimax-m3", 8, 106_997_878_720),
    ("step3", 1, 632_623_119_312),
    ("step3", 8, 81_101_601_744),
    ("longcat-flash", 1, 1_121_611_023_232),
    ("longcat-flash", 8, 141_951_632_256),
    ("deepseek-v4-flash", 1, 156_543_260_892),
    ("deepseek-v4-flash", 8, 21_181_771_804),
]


@pytest.mark.parametrize(("name", "tensor", "want_bytes"), LOADED)
def test_weights_of_the_first_rank(name: str, tensor: int, want_bytes: int) -> None:
    got_bytes = max(
        weights_by_stage(
            Checkpoint(load_shape(name)),
            Parallelism(tensor),
            OPTIONS,
            CATALOG.accelerator("h200-sxm-141gb"),
            CATALOG.release(OPTIONS.release),
        )
    )

    assert got_bytes == pytest.approx(want_bytes, rel=0.0005)


MAMBA2 = Mamba2(heads=128, head_dim=64, state_size=128, groups=1, conv_kernel=4)
GROUPED = Mamba2(32, 128, 256, 2, 4)
NANO = Mamba2(64, 64, 128, 8, 4, state_element_bytes=4)
JAMBA = Mamba(inner_size=8192, state_size=16, conv_kernel=4, time_step_rank=256)
QWEN = LinearAttention(16, 48, 128, 128, 4, DType.FLOAT32)
KIMI = DeltaAttention(heads=32, head_dim=128, conv_kernel=4, gate_rank=128, decay_rank=128)
RING = LightningAttention(heads=64, head_dim=128, norm_groups=8)
LFM2 = ShortConvolution(width=2048, kernel=3)

# Shapes of the MambaSpec that vLLM plans with: elements of each tensor, and bytes of one.
STATES: list[tuple[StateMixer, int, int, list[tuple[int, int]]]] = [
    (MAMBA2, 1, 0, [(3 * 8448, 2), (128 * 64 * 128, 2)]),
    (MAMBA2, 8, 0, [(3 * 1280, 2), (16 * 64 * 128, 2)]),
    (GROUPED, 2, 0, [(3 * 2560, 2), (16 * 128 * 256, 2)]),
    (NANO, 1, 0, [(3 * 6144, 2), (64 * 64 * 128, 4)]),
    (NANO, 1, 1, [(4 * 6144, 2), (64 * 64 * 128, 4)]),
    (JAMBA, 4, 0, [(3 * 2048, 2), (2048 * 16, 2)]),
    (QWEN, 1, 0, [(3 * 10240, 2), (48 * 128 * 128, 4)]),
    (QWEN, 4, 1, [(4 * 2560, 2), (12 * 128 * 128, 4)]),
    (KIMI, 8, 0, [(3 * 1536, 2), (4 * 128 * 128, 4)]),
    (RING, 8, 0, [(8 * 128 * 128, 2)]),
    (LFM2, 2, 0, [(2 * 1024, 2)]),
    (LFM2, 1, 2, [(4 * 2048, 2)]),
]


@pytest.mark.parametrize(("mixer", "tensor", "speculative_tokens", "want"), STATES)
def test_states_of_a_sequence(
    mixer: StateMixer, tensor: int, speculative_tokens: int, want: list[tuple[int, int]]
) -> None:
    states = mixer_states(
        mixer, Sharding(tensor=tensor), model_bytes=2, speculative_tokens=speculative_tokens
    )

    assert [(state.elements, state.element_bytes) for state in states] == want
    assert [state.size_bytes for state in states] == [count * size for count, size in want]


WIDTHS: list[tuple[StateMixer, int, int]] = [
    (MAMBA2, 8192 + 8448 + 128, 8192),
    (JAMBA, 2 * 8192, 8192),
    (QWEN, 2 * (2048 + 6144), 6144),
    (KIMI, 4 * 4096, 4096),
    (RING, 4 * 8192, 8192),
    (LFM2, 3 * 2048, 2048),
]


@pytest.mark.parametrize(("mixer", "want_input", "want_output"), WIDTHS)
def test_how_wide_a_token_is_before_and_after_the_state(
    mixer: StateMixer, want_input: int, want_output: int
) -> None:
    assert state_mixer_input(mixer, WHOLE) == want_input
    assert state_mixer_output(mixer, WHOLE) == want_output


def elements(mixer: Mixer, tensor: int, part: WeightPart = WeightPart.ATTENTION) -> int:
    """Weights of a mixer on one rank of a model of width 4096."""
    matrices = mixer_matrices(mixer, 4096, Sharding(tensor=tensor))
    return sum(matrix.elements + matrix.biases for matrix in matrices if matrix.part is part)


def test_a_single_group_lies_on_every_rank_and_more_are_shared_out() -> None:
    alone = elements(MAMBA2, 4)
    shared = elements(Mamba2(128, 64, 128, 4, 4), 4)

    assert alone == shared


def test_the_gate_and_decay_of_full_rank_take_the_place_of_two_pairs() -> None:
    low = elements(KIMI, 1)
    full = elements(DeltaAttention(32, 128, 4), 1)

    assert full - low == 2 * (4096 * 4096 - 128 * 4096 - 4096 * 128)


def test_the_latent_of_kimis_decay_is_whole_on_every_rank() -> None:
    without = DeltaAttention(32, 128, 4, gate_rank=128)

    assert elements(KIMI, 8) - elements(without, 8) == 128 * 4096 + 512 * 128 - 512 * 4096


def test_rows_of_kimi_k3_are_rounded_up() -> None:
    plain = DeltaAttention(96, 128, 4, decay_rank=128)
    rounded = DeltaAttention(96, 128, 4, decay_rank=128, row_multiple=16)

    assert elements(rounded, 8) - elements(plain, 8) == 4 * 4096  # 12 heads are rounded to 16


def test_an_indexer_of_blocks_has_one_key_on_every_rank() -> None:
    plain = Attention(64, 4, 128, 128)
    chosen = Attention(64, 4, 128, 128, indexer=SparseIndexer(4, 128, 16))

    assert elements(chosen, 1) - elements(plain, 1) == (4 + 1) * 128 * 4096
    assert elements(chosen, 8) - elements(plain, 8) == (1 + 1) * 128 * 4096


def test_low_rank_queries_are_computed_whole_and_expanded_by_head() -> None:
    plain = Attention(64, 1, 256, 256)
    low = Attention(64, 1, 256, 256, query_rank=2048)

    query = 8 * 256
    saved = elements(plain, 8) - elements(low, 8)
    assert saved == query * 4096 - (2048 * 4096 + query * 2048)
    assert elements(low, 8, WeightPart.NORMS) == 2048


def test_sinks_of_compressed_attention_fill_the_kernel() -> None:
    def sinks(tensor: int) -> int:
        mixer = CompressedAttention(64, 512, 64, 1024, 1024, 8, 128)
        matrices = list(mixer_matrices(mixer, 4096, Sharding(tensor=tensor)))
        return next(matrix.rows for matrix in matrices if matrix.element_bytes == 4)

    assert [sinks(1), sinks(8)] == [64, 64]


def expert_elements(block: Experts, tensor: int, part: WeightPart = WeightPart.EXPERTS) -> int:
    matrices = feed_forward_matrices(block, 4096, Sharding(tensor=tensor))
    return sum(matrix.elements for matrix in matrices if matrix.part is part)


def test_experts_of_a_space_of_their_own_are_reached_on_every_rank() -> None:
    block = Experts(512, 22, 2688, gated=False, latent_size=1024)

    assert expert_elements(block, 1) == 512 * 2 * 2688 * 1024
    assert [expert_elements(block, tensor, WeightPart.MLP) for tensor in (1, 8)] == [
        2 * 4096 * 1024
    ] * 2


def test_a_part_of_an_expert_is_never_narrower_than_its_kernels_want() -> None:
    block = Experts(256, 8, 1024, narrowest_shard=256)

    assert expert_elements(block, 4) == expert_elements(block, 8) == 256 * 3 * 256 * 4096
