"""Bits per weight from the names of GGUF files."""

import pytest

from tonnage.catalog.vllm.gguf import gguf_bits_per_weight


@pytest.mark.parametrize(
    ("name", "want_bits"),
    [
        ("DeepSeek-R1-Distill-Qwen-32B-Q4_K_M", 4.84),
        ("llama-2-7b.Q4_0.gguf", 4.5),
        ("model-q8_0.gguf", 8.5),
        ("Qwen2.5-Q6_K", 6.56),
        ("a-Q4_0-of-Q5_K_S", 5.52),
        ("Llama-3.1-8B-Instruct", None),
        ("BQ4_0X", None),
        ("", None),
    ],
)
def test_bits_of_a_weight(name: str, want_bits: float | None) -> None:
    assert gguf_bits_per_weight(name) == want_bits
