"""What a step reads for its requests: keys and values, compressed ones, and states."""

import pytest

from tests.support.shapes import load_shape
from tonnage.fit.model import MemoryAccount
from tonnage.throughput.work import token_work

STATES: list[tuple[str, int]] = [
    ("llama-3.1-8b", 0),
    ("nemotron-3-nano-nvfp4", 23 * (3 * 6144 * 2 + 64 * 64 * 128 * 4)),
    ("falcon-mamba-7b", 64 * (3 * 8192 + 8192 * 16) * 2),
    ("lfm2-8b-a1b", 18 * 2 * 2048 * 2),
]


def account(kv_bytes_per_token: int) -> MemoryAccount:
    """An account of which only the rate of the KV cache is filled in."""
    return MemoryAccount(0, 0, 0, 0, 0, 0, 0, 0, kv_bytes_per_token, 0)


@pytest.mark.parametrize(("name", "want_bytes"), STATES)
def test_states_are_read_and_written_once_a_step(name: str, want_bytes: int) -> None:
    work = token_work(load_shape(name), None)

    assert work.state_bytes_moved(gpus=1, requests=1) == 2 * want_bytes
    assert work.state_bytes_moved(gpus=4, requests=8) == 4 * want_bytes


def test_a_model_without_attention_reads_no_kv_cache() -> None:
    assert token_work(load_shape("falcon-mamba-7b"), None).kv_bytes(account(0), 8, 4096) == 0


def test_compressed_attention_reads_its_window_and_what_it_has_compressed() -> None:
    shape = load_shape("deepseek-v4-flash", compress_ratios=[128] * 43)
    work = token_work(shape, None)

    # A token of context costs 1/128 of a latent; of 12,800 tokens 100 are read, and the window.
    assert work.kv_bytes(account(43), 1, 12_800) == pytest.approx(43 * 128 * (100 + 128))


def test_an_indexer_bounds_what_is_read_of_the_compressed_cache() -> None:
    shape = load_shape("deepseek-v4-flash", compress_ratios=[4] * 43)
    work = token_work(shape, None)

    assert work.kv_bytes(account(43), 1, 100_000) == work.kv_bytes(account(43), 1, 1_000_000)
    assert work.operations(1, 100_000) == work.operations(1, 1_000_000)
