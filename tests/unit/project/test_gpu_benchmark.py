"""What benchmarks.gpu carries to a machine with a GPU, and what it asks there."""

import struct
import subprocess
from pathlib import Path

import pytest

from benchmarks.gpu.cases import load_measurement
from benchmarks.gpu.fatbin import keep_architecture
from benchmarks.gpu.mamba_kernels import mamba_shape

RUN = Path(__file__).parents[3] / "benchmarks" / "gpu" / "run.sh"
PTX, CODE = 1, 2


def test_kernels_are_compiled_for_models_with_mamba_layers_alone() -> None:
    cases = load_measurement().cases
    shapes = {case.id: mamba_shape(case.config()) for case in cases}
    assert shapes["nemotron-nano-9b"] == (128, 80, 8, 128, 128)
    assert {name for name, shape in shapes.items() if shape} == {
        case.id for case in cases if "nemotron" in case.id
    }


def entry(kind: int, architecture: int, code: bytes) -> bytes:
    header = struct.pack("<HHIQ", kind, 0, 64, len(code)) + bytes(12)
    return (header + struct.pack("<I", architecture)).ljust(64, b"\0") + code


def library(*entries: bytes) -> bytes:
    """An ELF file whose only sections are the fat binary and the names of sections."""
    body = b"".join(entries)
    fat = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
    names = b"\0.nv_fatbin\0.shstrtab\0"
    names_at, table = 64 + len(fat), 64 + len(fat) + len(names)
    header = bytearray(64)
    struct.pack_into("<Q", header, 0x28, table)
    struct.pack_into("<HHH", header, 0x3A, 64, 2, 1)
    sections = b"".join(
        struct.pack("<IIQQQQ", name, 1, 0, 0, offset, size).ljust(64, b"\0")
        for name, offset, size in ((1, 64, len(fat)), (12, names_at, len(names)))
    )
    return bytes(header) + fat + names + sections


def test_code_of_other_architectures_is_emptied() -> None:
    ours, other, ptx = b"hopper--", b"ampere--", b"ptx-----"
    built = library(entry(CODE, 80, other), entry(CODE, 90, ours), entry(PTX, 80, ptx))
    kept = keep_architecture(built, 90)
    assert len(kept) == len(built)
    assert ours in kept
    assert other not in kept
    assert ptx not in kept


def test_without_code_for_the_device_the_newest_ptx_stays() -> None:
    old, newer, too_new = b"ptx-7.5-", b"ptx-8.0-", b"ptx-10.0"
    built = library(entry(PTX, 75, old), entry(PTX, 80, newer), entry(PTX, 100, too_new),
                    entry(CODE, 80, b"ampere--"))  # fmt: skip
    kept = keep_architecture(built, 90)
    assert [code in kept for code in (old, newer, too_new, b"ampere--")] == [
        False, True, False, False,
    ]  # fmt: skip


def test_a_broken_entry_is_an_error() -> None:
    broken = bytearray(library(entry(CODE, 90, b"code----")))
    struct.pack_into("<I", broken, 64 + 16 + 4, 0)
    with pytest.raises(ValueError, match="has no header"):
        keep_architecture(bytes(broken), 90)


def test_cases_are_asked_with_the_arguments_that_the_operator_renders() -> None:
    measurement = load_measurement()
    case = next(case for case in measurement.cases if case.id == "llama-8b-fp8-cache")
    (travelling,) = measurement.travelling_cases([case])
    assert {"--max-model-len=8192", "--kv-cache-dtype=fp8", "--enforce-eager",
            "--load-format=dummy"} <= set(travelling["arguments"])  # fmt: skip
    assert travelling["environment"]["VLLM_USE_FLASHINFER_SAMPLER"] == "0"


def test_a_third_of_the_cases_is_held_out() -> None:
    cases = load_measurement().cases
    assert len({case.id for case in cases}) == len(cases)
    assert 3 * sum(case.held_out for case in cases) >= len(cases)


def test_missing_pieces_are_named(tmp_path: Path) -> None:
    carried, kept = tmp_path / "carried", tmp_path / "kept"
    carried.mkdir()
    (carried / "site.tar.xz.00").write_bytes(b"first")
    digests = "".join(f"{64 * '0'}  site.tar.xz.{number:02}\n" for number in (0, 1))
    (carried / "SHA256SUMS").write_text(digests)
    ran = subprocess.run(
        ["sh", RUN, carried, kept, "1"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "site.tar.xz.00: FAILED" in ran.stdout
    assert "site.tar.xz.01: FAILED open or read" in ran.stdout
