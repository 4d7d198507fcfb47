"""`tonnage run` where the namespace of its Lease does not exist."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.harness.ports import PortLease
from e2e.harness.stack import Stack

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("_installed")
def test_the_operator_ends_and_says_what_is_missing(control_plane: Stack) -> None:
    lease = PortLease(["operator"])
    command = [
        *(sys.executable, "-P", "-m", "tonnage", "run"),
        f"--kubeconfig={control_plane.kubeconfig}",
        f"--listen=127.0.0.1:{lease.ports['operator']}",
        "--namespace=nowhere",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=300, check=False
        )
    finally:
        lease.release()
    assert process.returncode == 1
    lines = [json.loads(line) for line in (process.stdout + process.stderr).splitlines()]
    errors = [line for line in lines if line["level"] == "error"]
    message = str(errors[0])
    assert "namespace nowhere of the Lease for leader election does not exist" in message
    assert "kubectl create namespace nowhere" in message
    assert "--namespace" in message
