from pathlib import Path

import pytest

from tonnage.api.conditions import Reason
from tonnage.placement.adjustments import MemoryShortfall, ShortfallKind
from tonnage.telemetry.startup_log import MAX_CHARACTERS, find_cause, read_shortfall

GIB = 2**30
MIB = 2**20
LOGS = Path(__file__).parents[2] / "data" / "logs"


def read_log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text("utf-8")


@pytest.mark.parametrize(
    ("log", "want_reason", "want_words"),
    [
        (
            "max-model-len-over-kv-cache",
            Reason.OUT_OF_MEMORY,
            "ValueError: To serve at least one request with the model's max seq len (1000000)",
        ),
        (
            "kv-space-over-memory",
            Reason.OUT_OF_MEMORY,
            "ValueError: Available memory on node 0 (15.6/18.34 GiB) on kv cache allocation is",
        ),
        (
            "truncated-weights",
            None,
            "safetensors._safetensors_rust.SafetensorError: Error while deserializing header",
        ),
        ("tensor-parallel-size", None, "Total number of attention heads (8) must be divisible by"),
        ("max-model-len-over-model", None, "User-specified max_model_len (4096) is greater than"),
        ("missing-path", None, "huggingface_hub.errors.HFValidationError: Repo id must be in the"),
        ("port-in-use", None, "OSError: [Errno 98] Address already in use"),
        ("unknown-flag", None, "vllm: error: unrecognized arguments: --no-such-flag 3"),
        (
            "engine-killed",
            None,
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered",
        ),
    ],
)
def test_the_line_with_the_cause_of_a_failed_start_is_found(
    log: str, want_reason: Reason | None, want_words: str
) -> None:
    cause = find_cause(read_log(log))
    assert cause is not None
    assert cause.reason == want_reason
    assert cause.message.startswith(want_words)
    assert len(cause.message) <= MAX_CHARACTERS


@pytest.mark.parametrize(
    ("line", "want_words"),
    [
        pytest.param(
            "(Worker_TP0 pid=41) ERROR 11-21 02:36:51 [gpu_worker.py:80] torch.OutOfMemoryError:"
            " CUDA out of memory. Tried to allocate 2.00 GiB.",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            id="of a tensor-parallel worker on NVIDIA",
        ),
        pytest.param(
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.",
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.",
            id="on AMD",
        ),
        pytest.param(
            "ValueError: Free memory on device cuda:0 (12.1/79.2 GiB) on startup is less than"
            " desired GPU memory utilization (0.92, 72.9 GiB).",
            "ValueError: Free memory on device cuda:0 (12.1/79.2 GiB) on startup is less than"
            " desired GPU memory utilization (0.92, 72.9 GiB).",
            id="of a device that another process uses",
        ),
        pytest.param(
            "ValueError: No available memory for the cache blocks. Try increasing"
            " `gpu_memory_utilization` when initializing the engine.",
            "ValueError: No available memory for the cache blocks. Try increasing"
            " `gpu_memory_utilization` when initializing the engine.",
            id="of weights that leave no memory for the KV cache",
        ),
    ],
)
def test_all_messages_of_out_of_memory_are_recognised(line: str, want_words: str) -> None:
    log = f"INFO: starting\n{line}\nRuntimeError: Engine core initialization failed.\n"
    cause = find_cause(log)
    assert cause is not None
    assert (cause.reason, cause.message) == (Reason.OUT_OF_MEMORY, want_words)


def test_a_log_without_any_error_has_no_cause() -> None:
    assert find_cause("INFO:     Application startup complete.\nINFO:     Shutting down\n") is None
    assert find_cause("") is None


def test_a_line_that_points_to_another_is_used_if_there_is_no_other() -> None:
    cause = find_cause("RuntimeError: Engine core initialization failed. See root cause above.")
    assert cause is not None
    assert cause.message.startswith("RuntimeError: Engine core initialization failed")


def test_the_traceback_of_a_cause_is_not_the_cause() -> None:
    log = '    raise ValueError("x")\n  File "a.py", line 1, in f\nValueError: too few heads\n'
    cause = find_cause(log)
    assert cause is not None
    assert cause.message == "ValueError: too few heads"


@pytest.mark.parametrize(
    "log",
    [
        "x" * 10_000_000,
        "ValueError: " + "y" * 1_000_000,
        "Free memory on device " * 50_000,
        "\x00\x1b[31m\u2028ValueError: a\u0085b",
        "a." * 500_000 + "Error",
    ],
    ids=["one long line", "long words", "almost a rule", "control characters", "almost an error"],
)
def test_a_hostile_log_takes_no_time_and_gives_a_short_excerpt(log: str) -> None:
    cause = find_cause(log[-64 * 1024 :])
    assert cause is None or len(cause.message) <= MAX_CHARACTERS


FREE_MEMORY, KV_CACHE, ALLOCATION = ShortfallKind


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param(
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.95 GiB. GPU 0 has a"
            " total capacity of 127.00 GiB of which 768.50 MiB is free. Of the allocated memory",
            MemoryShortfall(ALLOCATION, round(12.95 * GIB), round(768.5 * MIB)),
            id="an allocation on AMD",
        ),
        pytest.param(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512 bytes.",
            MemoryShortfall(ALLOCATION, 512, None),
            id="an allocation, and not what was free",
        ),
        pytest.param(
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy"
            " requests. Please try lowering `max_num_seqs`",
            MemoryShortfall(ALLOCATION, None, None),
            id="an allocation without figures",
        ),
        pytest.param(
            "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than"
            " desired GPU memory utilization (0.9, 19.84 GiB). Decrease GPU memory utilization",
            MemoryShortfall(FREE_MEMORY, round(19.84 * GIB), round(19.77 * GIB)),
            id="a device that is partly used",
        ),
        pytest.param(
            "ValueError: Free memory on device (7.34/139.72 GiB) on startup is less than desired"
            " GPU memory utilization (0.9, 125.75 GiB).",
            MemoryShortfall(FREE_MEMORY, round(125.75 * GIB), round(7.34 * GIB)),
            id="a device that is partly used, in an older message",
        ),
        pytest.param(
            "ValueError: No available memory for the cache blocks. Try increasing",
            MemoryShortfall(KV_CACHE, None, None),
            id="nothing left for the KV cache",
        ),
        pytest.param(
            "the kernel killed it: host memory limit exceeded; exit code 137 (OOMKilled)",
            None,
            id="memory of the host",
        ),
        pytest.param("ValueError: too few heads", None, id="no memory"),
    ],
)
def test_the_shortfall_is_read_from_the_message(words: str, want: MemoryShortfall | None) -> None:
    assert read_shortfall(words) == want


def test_the_shortfall_is_read_from_the_cause_of_a_failed_start() -> None:
    cause = find_cause(read_log("max-model-len-over-kv-cache"))
    assert cause is not None
    want = MemoryShortfall(KV_CACHE, round(1.91 * GIB), GIB)
    assert read_shortfall(cause.message) == want


@pytest.mark.parametrize("amount", ["1e400", "-3", "9" * 400, "1.2.3", "...", "nan", "٣"])
def test_an_invalid_amount_is_unknown(amount: str) -> None:
    words = f"CUDA out of memory. Tried to allocate {amount} GiB. of which {amount} GiB is free."
    assert read_shortfall(words) == MemoryShortfall(ALLOCATION, None, None)
