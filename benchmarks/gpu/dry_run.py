"""Tries all cases without a GPU, as far as vLLM's engine configuration, so that a missing module or
a refused argument shows before the machine with the GPU is asked for.

    PYTHONPATH=SITE:. python3 -m benchmarks.gpu.dry_run --cases cases.jsonl --site SITE

SITE has what benchmarks.gpu.carry packs, this Python the same torch as that machine.
vLLM's libraries load with a stub of libcuda whose functions all return "no device". What vLLM keeps
about the models' classes in VLLM_CACHE_ROOT saves some ten seconds a model on the other machine.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from benchmarks.gpu.engine_core import configure

_MARK: Final = "TONNAGE_STUB_LIBCUDA"
_DRIVER_FUNCTION: Final = re.compile(r"\bUND (cu[A-Z]\w+)")
_NO_DEVICE: Final = 100


def main() -> None:
    """Print a line for each case; exit with 1 if vLLM refuses one."""
    parser = argparse.ArgumentParser(description=__doc__.partition(",")[0])
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--site", type=Path, required=True)
    asked = parser.parse_args()
    if _MARK not in os.environ:
        folder = _build_stub(asked.site)
        environment = os.environ | {_MARK: folder, "LD_LIBRARY_PATH": folder}
        again = [sys.executable, "-m", __spec__.name, *sys.argv[1:]]
        os.execve(sys.executable, again, environment)  # noqa: S606  the loader reads it at start
    cases = [json.loads(line) for line in asked.cases.read_text().splitlines()]
    refused = [case["id"] for case in cases if not _try(case)]
    if refused:
        sys.exit(f"refused: {', '.join(refused)}")


def _build_stub(site: Path) -> str:
    """Compile a libcuda.so.1 with the functions that vLLM's libraries want; its folder."""
    names: set[str] = set()
    for library in (site / "vllm").rglob("*.so"):
        symbols = subprocess.run(
            ["readelf", "--wide", "--dyn-syms", library], capture_output=True, text=True, check=True
        ).stdout
        names.update(_DRIVER_FUNCTION.findall(symbols))
    folder = mkdtemp(prefix="libcuda-")
    source = "".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in sorted(names))
    compiler = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-"]
    output = ["-o", f"{folder}/libcuda.so.1"]
    subprocess.run([*compiler, *output], input=source, text=True, check=True)
    return folder


def _try(case: dict[str, Any]) -> bool:
    os.environ.update(case["environment"])  # vLLM reads some of them when it is imported
    _pretend_to_be_hopper()
    try:
        config = configure(case)
    except Exception as error:  # noqa: BLE001  whatever vLLM raises is the answer
        print(f"{case['id']}: {type(error).__name__}: {error}", flush=True)
        return False
    print(f"{case['id']}: {config.model_config.architectures[0]}", flush=True)
    return True


def _pretend_to_be_hopper() -> None:
    import vllm.platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class Hopper(NonNvmlCudaPlatform):  # type: ignore[misc]  # vLLM is not installed for mypy
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(9, 0)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return "NVIDIA H200"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return 150_109_880_320

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 132

        @classmethod
        def log_warnings(cls) -> None:
            """Nothing to warn of."""

    vllm.platforms._current_platform = Hopper()


if __name__ == "__main__":
    main()
