"""Serves a model with random weights by the command that the operator renders, and asks it.

    PYTHONPATH=SITE:. python3 -m benchmarks.gpu.serve --case serve.json --output FOLDER --seconds 30

Runs where vLLM is, with nothing else of the project. Writes the weights, starts the container's
command, keeps as many requests in flight as the InferenceDeployment says, and keeps what /metrics
says meanwhile, with times, in FOLDER/metrics.jsonl; FOLDER/served.json has what was seen.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

_BASE: Final = "http://127.0.0.1:8000"
_SCRAPE_SECONDS: Final = 1


def main() -> None:
    """Make the model, serve it, ask it, end it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=30, help="how long requests are sent")
    parser.add_argument("--ready-seconds", type=float, default=150)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    case = json.loads(asked.case.read_text())
    seen: dict[str, Any] = {"weightsBytes": _write_model(case)}
    command = [*case["command"], *case["arguments"]]
    if command[0] == "vllm":
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", *command[1:]]
    started = time.monotonic()
    log = asked.output / "serve.log"
    with log.open("w") as stream:
        server = subprocess.Popen(
            command,
            env=os.environ | case["environment"],
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait_until_ready(server, asked.ready_seconds)
            seen["readySeconds"] = round(time.monotonic() - started, 1)
            seen["answer"] = _ask(case, 8, 16)
            seen |= _load(case, asked.seconds, asked.output / "metrics.jsonl")
            server.send_signal(signal.SIGTERM)
            seen["exitCode"] = server.wait(60)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
                print(log.read_text(errors="replace")[-3000:])
    (asked.output / "served.json").write_text(json.dumps(seen, indent=1))
    print(json.dumps(seen), flush=True)


def _write_model(case: dict[str, Any]) -> int:
    """Write random weights to the folder that the command names; their size in bytes."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = Path(case["arguments"][0])
    folder.mkdir(parents=True, exist_ok=True)
    config = json.dumps(case["config"])
    (folder / "config.json").write_text(config)
    torch.manual_seed(1)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder), dtype=torch.bfloat16
        )
    model.save_pretrained(folder)
    (folder / "config.json").write_text(config)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for name, content in case["tokenizer"].items():
        (folder / name).write_text(content)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _wait_until_ready(server: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for /health; raises TimeoutError, or RuntimeError if the server ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with status {server.returncode}")
        try:
            with urllib.request.urlopen(f"{_BASE}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.2)  # the server says nothing when it becomes ready
    raise TimeoutError(f"the server is not ready after {seconds:.0f} s")


def _ask(case: dict[str, Any], prompt: int, tokens: int) -> dict[str, Any]:
    """One completion: its usage and the seconds it took."""
    body = {
        "model": case["servedName"],
        "prompt": [random.randrange(250) for _ in range(prompt)],
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 1.0,
    }
    request = urllib.request.Request(
        f"{_BASE}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    begun = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        usage = json.load(answer)["usage"]
    return {"seconds": time.monotonic() - begun, "usage": usage}


def _load(case: dict[str, Any], seconds: float, metrics: Path) -> dict[str, Any]:
    """Keep `concurrency` requests in flight, and keep /metrics each second."""
    workload = case["workload"]
    begun = time.monotonic()
    finished: list[dict[str, Any]] = []

    def send_requests() -> None:
        while time.monotonic() < begun + seconds:
            finished.append(_ask(case, workload["inputTokens"], workload["outputTokens"]))

    clients = [threading.Thread(target=send_requests) for _ in range(workload["concurrency"])]
    for client in clients:
        client.start()
    with metrics.open("w") as stream:
        while any(client.is_alive() for client in clients):
            with urllib.request.urlopen(f"{_BASE}/metrics", timeout=10) as answer:
                text = answer.read().decode()
            stream.write(json.dumps({"time": time.time(), "metrics": text}) + "\n")
            time.sleep(_SCRAPE_SECONDS)  # the interval between two samples
    tokens = sum(answer["usage"]["completion_tokens"] for answer in finished)
    return {"requests": len(finished), "tokens": tokens, "seconds": time.monotonic() - begun}


if __name__ == "__main__":
    main()
