"""What a start that fails says is what the operator looks for in its log."""

import pytest

from tonnage.api.conditions import Reason
from tonnage.telemetry.startup_log import find_cause

PATIENCE = 600


@pytest.mark.parametrize(
    ("asked", "want_reason", "want_words", "want_exit_code"),
    [
        pytest.param(
            {
                "context": 2_000_000,
                "extra": ('--hf-overrides={"max_position_embeddings": 2000000}',),
            },
            Reason.OUT_OF_MEMORY,
            "To serve at least one request with the model's max seq len (2000000)",
            1,
            id="the KV cache does not hold one request",
        ),
        pytest.param(
            {"cpu": {"VLLM_CPU_KVCACHE_SPACE": "9000"}},
            Reason.OUT_OF_MEMORY,
            "on kv cache allocation is less than requested memory for kv",
            1,
            id="more KV cache than memory",
        ),
        pytest.param(
            {"tensor": 3},
            None,
            "Total number of attention heads (8) must be divisible by tensor parallel size (3)",
            1,
            id="a split that the heads do not have",
        ),
        pytest.param(
            {"context": 4096},
            None,
            "User-specified max_model_len (4096) is greater than",
            1,
            id="a context that the model does not have",
        ),
        pytest.param(
            {"model": "/nowhere/at-all"},
            None,
            "/nowhere/at-all",
            1,
            id="a folder that there is not",
        ),
        pytest.param(
            {"extra": ("--no-such-flag=3",)},
            None,
            "vllm: error: unrecognized arguments: --no-such-flag=3",
            2,
            id="a flag that there is not",
        ),
    ],
)
def test_a_failed_start_is_reported_with_its_cause(
    start, asked, want_reason, want_words, want_exit_code
):
    failing = start(**asked)
    assert failing.wait_ended(PATIENCE) == want_exit_code
    cause = find_cause(failing.log)
    assert cause is not None, failing.log
    assert want_words in cause.message
    assert cause.reason == want_reason
