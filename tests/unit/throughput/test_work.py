"""Bytes and operations of a step: KV cache, compressed attention, states and experts."""

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.fit.model import MemoryAccount
from tonnage.throughput.work import token_work

STATES: list[tuple[str, int]] = [
    ("llama-3.1-8b", 0),
    ("nemotron-3-nano-nvfp4", 23 * (3 * 6144 * 2 + 64 * 64 * 128 * 4)),
    ("falcon-mamba-7b", 64 * (3 * 8192 + 8192 * 16) * 2),
    ("lfm2-8b-a1b", 18 * 2 * 2048 * 2),
]


def account(kv_bytes_per_token: int) -> MemoryAccount:
    """Return an account that has only the bytes per token of the KV cache."""
    return MemoryAccount(0, 0, 0, 0, 0, 0, 0, 0, kv_bytes_per_token, 0)


@pytest.mark.parametrize(("name", "want_bytes"), STATES)
def test_states_are_read_and_written_once_a_step(name: str, want_bytes: int) -> None:
    work = token_work(load_shape(name), None)

    assert work.state_bytes_moved(gpus=1, requests=1) == 2 * want_bytes
    assert work.state_bytes_moved(gpus=4, requests=8) == 4 * want_bytes


def test_a_model_without_attention_reads_no_kv_cache() -> None:
    assert token_work(load_shape("falcon-mamba-7b"), None).kv_bytes(account(0), 8, 4096) == 0


def test_compressed_attention_reads_its_window_and_the_compressed_latents() -> None:
    shape = load_shape("deepseek-v4-flash", compress_ratios=[128] * 43)
    work = token_work(shape, None)

    # A token of context takes 1/128 of a latent; a step reads 100 of 12,800 tokens, and the window.
    assert work.kv_bytes(account(43), 1, 12_800) == pytest.approx(43 * 128 * (100 + 128))


def test_an_indexer_limits_reads_of_the_compressed_cache() -> None:
    shape = load_shape("deepseek-v4-flash", compress_ratios=[4] * 43)
    work = token_work(shape, None)

    assert work.kv_bytes(account(43), 1, 100_000) == work.kv_bytes(account(43), 1, 1_000_000)
    assert work.decode_attention(100_000) == work.decode_attention(1_000_000)


def test_sparse_latent_attention_reads_the_chosen_tokens_and_all_indexer_keys() -> None:
    work = token_work(load_shape("deepseek-v3", index_n_heads=64, index_head_dim=128), None)
    dense = token_work(load_shape("deepseek-v3"), None)

    assert work.chosen_tokens == 2048
    assert work.decode_attention(2048) == dense.decode_attention(2048)
    assert work.decode_attention(100_000) == work.decode_attention(2048)
    # For 100,000 tokens a step reads 2,048 latents of 576 elements, and all keys of 128 in 8 bits.
    want = 1000 * (2048 * 576 + 100_000 * 64) / (576 + 64)
    assert work.kv_bytes(account(1000), 1, 100_000) == pytest.approx(want)


def test_decoding_with_latent_attention_multiplies_complete_latents() -> None:
    work = token_work(load_shape("deepseek-v3"), None)

    assert work.decode_attention(1000) == 61 * 2 * 128 * (2 * 512 + 64) * 1000
    assert work.prompt_attention(1000) == 61 * 2 * 128 * (128 + 64 + 128) * 1000


def test_a_sliding_window_limits_the_operations_of_attention() -> None:
    work = token_work(load_shape("gpt-oss-120b"), None)

    difference = work.decode_attention(100_000) - work.decode_attention(50_000)
    assert difference == 18 * 2 * 64 * (64 + 64) * 50_000


def test_a_token_uses_only_its_own_experts() -> None:
    work = token_work(load_shape("mixtral-8x7b"), None)

    assert work.expert_layers == 32
    assert work.active_expert_parameters == 32 * 2 * 3 * 4096 * 14336
    assert token_work(load_shape("llama-3.1-8b"), None).active_expert_parameters == 0
