"""Starts vLLM once for each case on this machine's GPU, and writes what it took and how fast it is.

    PYTHONPATH=SITE:. python3 -m benchmarks.gpu.measure --cases cases.jsonl --results FILE \
      --logs FOLDER --seconds 500

Runs where vLLM is, with nothing else of the project. A line is appended after each case; cases that
have one already are left out, so that a run that was cut off goes on. vLLM is imported once and
each case is a fork of that process, so that a case pays for its own start alone.
"""

import argparse
import contextlib
import json
import os
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.engine_core import start_and_measure
from benchmarks.gpu.mamba_kernels import compile_mamba_kernels, mamba_shape

Case = dict[str, Any]

_SHARED_VARIABLES: Final = ("HOME", "HF_", "VLLM_CACHE_ROOT", "TRITON_", "TORCHINDUCTOR_", "XDG_")
"""Variables of a case that are the same for all and have to be set before vLLM is imported."""

_PRINTED: Final = {
    "kvCacheTokens": re.compile(r"GPU KV cache size: ([\d,]+) tokens"),
    "printedKvCacheGiB": re.compile(r"Available KV cache memory: ([\d.]+) GiB"),
    "printedWeightsGiB": re.compile(r"Model loading took ([\d.]+) GiB"),
    "compileSeconds": re.compile(r"compilation: ([\d.]+) s"),
}
_BACKEND: Final = re.compile(r"Using (?:AttentionBackendEnum\.)?(\w+) (?:attention )?backend")
_GRACE_SECONDS: Final = 60
"""How much longer than the time given the last case may take."""


def main() -> None:
    """Run what is left of the cases within the time given."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--logs", type=Path, required=True, help="folder for what vLLM prints")
    parser.add_argument(
        "--seconds", type=float, required=True, help="start no case after this time"
    )
    parser.add_argument("--give-up-after", type=int, default=2, help="starts that fail at once")
    asked = parser.parse_args()
    end = time.monotonic() + asked.seconds
    asked.logs.mkdir(parents=True, exist_ok=True)
    done = set()
    if asked.results.exists():
        done = {json.loads(line)["id"] for line in asked.results.read_text().splitlines()}
    cases = [json.loads(line) for line in asked.cases.read_text().splitlines()]
    cases = [case for case in cases if case["id"] not in done]
    _prepare(cases)
    started, compiled = 0, set()
    for number, case in enumerate(cases):
        if number == asked.give_up_after and not started:
            sys.exit("no case started")
        if time.monotonic() > end:
            _say(f"out of time before {case['id']}")
            break
        shape = mamba_shape(case["config"])
        if shape and shape not in compiled:
            begun = time.monotonic()
            compile_mamba_kernels(shape, case["environment"])
            compiled.add(shape)
            _say(f"kernels of {case['id']}: {time.monotonic() - begun:.1f} s")
        limit = min(case["limitSeconds"], end + _GRACE_SECONDS - time.monotonic())
        result = _run_case(case, asked.logs, limit)
        started += result["outcome"] == "started"
        with asked.results.open("a") as stream:
            stream.write(json.dumps(result) + "\n")


def _prepare(cases: list[Case]) -> None:
    """Import vLLM for all forks, without touching the GPU."""
    for case in cases:
        shared = {k: v for k, v in case["environment"].items() if k.startswith(_SHARED_VARIABLES)}
        os.environ.update(shared)
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    started = time.monotonic()
    import vllm.entrypoints.cli.serve
    import vllm.v1.engine.core
    import vllm.v1.worker.gpu_model_runner
    import vllm.v1.worker.gpu_worker  # noqa: F401  the forks use them

    _say(f"imports: {time.monotonic() - started:.1f} s")


def _run_case(case: Case, logs: Path, seconds: float) -> dict[str, Any]:
    """Fork and measure there; what the child wrote, or why it wrote nothing."""
    log, line = logs / f"{case['id']}.log", logs / f"{case['id']}.json"
    line.unlink(missing_ok=True)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _measure_in_child(case, log, line)
    why = _wait_for(child, seconds)
    result = json.loads(line.read_text()) if line.exists() else {"outcome": "failed"}
    text = log.read_text(errors="replace")
    result |= _read_log(text)
    if result["outcome"] == "failed":
        result |= {"error": why or "no result", "tail": text[-4000:]}
    result = {"id": case["id"], "seconds": round(time.monotonic() - started, 1)} | result
    _say(json.dumps(result)[:400])
    return result


def _measure_in_child(case: Case, log: Path, line: Path) -> None:
    os.setsid()
    with log.open("w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    code = 1
    try:
        line.write_text(json.dumps(start_and_measure(case)))
        code = 0
    except BaseException:  # noqa: BLE001  the child may not return into the parent's loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait_for(child: int, seconds: float) -> str:
    """Wait for the child, and end it past its time. The reason is empty when it ended well."""
    end = time.monotonic() + max(seconds, 1)
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return "" if status == 0 else f"ended with status {os.waitstatus_to_exitcode(status)}"
        time.sleep(0.05)  # waitpid takes no time limit
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, 9)
    os.waitpid(child, 0)
    return f"took more than {seconds:.0f} s"


def _read_log(text: str) -> dict[str, Any]:
    """The figures that vLLM prints and that a user would read."""
    figures: dict[str, Any] = {}
    for key, pattern in _PRINTED.items():
        if match := pattern.search(text):
            figures[key] = float(match.group(1).replace(",", ""))
    figures["backends"] = sorted(set(_BACKEND.findall(text)))
    return figures


def _say(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    main()
