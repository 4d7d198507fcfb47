"""Packs vLLM and the cases for a machine that has a GPU and torch, but no network.

    python -m benchmarks.gpu.carry --output FOLDER [--left] [--piece-mib N]

downloads the wheels of wheels.txt, leaves out what no case needs (GPU code of other architectures,
FlashAttention 2, tokenizers of Mistral, translations), and writes site.tar.xz in pieces with their
checksums, and the cases. Some 57 MB in all. On the machine, `bash benchmarks/gpu/run.sh FOLDER`
joins the pieces, once it has all of them, and measures what is left.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.gpu.fatbin import keep_architecture

WHEELS: Final = Path(__file__).with_name("wheels.txt")
_HOPPER: Final = 90
_GLIBC: Final = ("2_31", "2_28", "2_27", "2_26", "2_24", "2_17")
_PLATFORMS: Final = (*(f"manylinux_{glibc}_x86_64" for glibc in _GLIBC), "manylinux2014_x86_64",
                     "manylinux1_x86_64")  # fmt: skip
_LEFT_OUT: Final = (
    "vllm/vllm-rs",
    "vllm/vllm_flash_attn/_vllm_fa2_C*",
    "vllm/third_party/deep_gemm/_C.cpython-3[!2]*",
    "vllm/third_party/deep_gemm/_C.cpython-31[!2]*",
    "pycountry/locales",
    "xgrammar/lib/*.a",
    "mistral_common/data/*",
)
_TUNED_FOR: Final = ("h100", "h200", "h20")
"""Kernel configurations are kept for these devices (vllm/**/configs/*.json)."""

_COMPRESSION: Final = "--x86 --lzma2=preset=9e,dict=256MiB"
"""Takes two minutes, and a tenth less than xz -7: the same kernels are in several libraries."""


def main() -> None:
    """Write the pieces and the cases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder to write to")
    parser.add_argument("--left", action="store_true", help="only cases without a record")
    parser.add_argument("--piece-mib", type=int, default=50, help="size of a piece in MiB")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        _install(site, Path(folder) / "wheels")
        _slim(site)
        _pack(site, asked.output, asked.piece_mib * 2**20)
    cases = [sys.executable, "-m", "benchmarks.gpu.cases", "--output", str(asked.output)]
    subprocess.run([*cases, *(["--left"] if asked.left else [])], check=True)


def _install(site: Path, wheels: Path) -> None:
    """Download for Python 3.12 on x86-64, and unpack."""
    target = ["--python-version", "3.12", "--implementation", "cp", "--only-binary=:all:"]
    platforms = [argument for platform in _PLATFORMS for argument in ("--platform", platform)]
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    subprocess.run(
        [*pip, *target, *platforms, "--requirement", WHEELS, "--dest", wheels], check=True
    )
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)


def _slim(site: Path) -> None:
    for pattern in _LEFT_OUT:
        for path in site.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in site.glob("vllm/**/configs/**/*.json"):
        if not any(device in path.name.lower() for device in _TUNED_FOR):
            path.unlink()
    for library in site.glob("**/*.so*"):
        if library.is_relative_to(site / "vllm"):
            library.write_bytes(keep_architecture(library.read_bytes(), _HOPPER))
        else:
            subprocess.run(["strip", "--strip-unneeded", library], check=False, capture_output=True)


def _pack(site: Path, output: Path, piece_bytes: int) -> None:
    """Write site.tar.xz.00 and on, and SHA256SUMS of them, as sha256sum reads it."""
    packed = subprocess.run(
        ["tar", "--create", "--sort=name", f"--use-compress-program=xz {_COMPRESSION}", "."],
        cwd=site,
        check=True,
        capture_output=True,
    ).stdout
    sums = []
    for number, start in enumerate(range(0, len(packed), piece_bytes)):
        name, piece = f"site.tar.xz.{number:02}", packed[start : start + piece_bytes]
        (output / name).write_bytes(piece)
        sums.append(f"{hashlib.sha256(piece).hexdigest()}  {name}\n")
    (output / "SHA256SUMS").write_text("".join(sums))
    print(f"{len(packed) / 2**20:.1f} MiB in {len(sums)} pieces in {output}")


if __name__ == "__main__":
    main()
