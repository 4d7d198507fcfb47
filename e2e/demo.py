"""`make demo`: Tonnage at work on a real control plane, with nothing but this repository.

Starts a control plane with a mixed GPU fleet, runs the operator, applies three samples and shows
what becomes of them. `DEMO_ONCE=1` ends by itself: with 0 when every sample reached the state it
is meant to reach, with 1 otherwise. Without it the cluster stays up to be played with until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from e2e.harness.admin import Admin
from e2e.harness.failure import run_cli
from e2e.harness.operator_process import ROOT, OperatorProcess, install
from e2e.harness.rest import Json
from e2e.harness.stack import Stack, down, up
from e2e.nodes.fleet import apply_fleet, load_fleet

_FOLDER = ROOT / ".demo"
_SAMPLES = ROOT / "manifests" / "samples"
_SETTLE_SECONDS = 120.0
_REFRESH_SECONDS = 0.2
_STYLES = {"Chosen": "bold green", "Feasible": "cyan", "Rejected": "dim"}


@dataclass(frozen=True, slots=True)
class Sample:
    """A shipped sample and what is meant to become of it: a pool's accelerator, or a reason."""

    file: str
    accelerator: str | None
    reason: str

    @property
    def path(self) -> Path:
        """The manifest."""
        return _SAMPLES / self.file

    @property
    def name(self) -> str:
        """The object's name."""
        return str(yaml.safe_load(self.path.read_text("utf-8"))["metadata"]["name"])

    def reached(self, deployment: Json | None) -> bool:
        """Whether the object is in the state it is meant to reach."""
        status = (deployment or {}).get("status") or {}
        placements = status.get("placements") or [{}]
        ready = _condition(status, "Ready")
        return bool(
            ready.get("reason") == self.reason
            and placements[0].get("accelerator") == self.accelerator
        )


SAMPLES = (
    Sample("llama-70b-inline.yaml", "mi300x", "ReplicasReady"),
    Sample("llama-70b-nvfp4-inline.yaml", "l40s", "ReplicasReady"),
    Sample("nothing-fits.yaml", None, "DoesNotFit"),
)


def main() -> int:
    """Run the demo and return its exit code."""
    argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__).parse_args()
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    once = os.environ.get("DEMO_ONCE", "") not in ("", "0")
    with _cluster(console) as stack, _operator(console, stack) as admin:
        for sample in SAMPLES:
            admin.apply(sample.path)
            console.print(f"[bold]$ kubectl apply -f {sample.path.relative_to(ROOT)}[/]")
        reached = _watch(console, admin)
        _write_picture(admin)
        if not reached:
            console.print("[bold red]not every sample reached the state it is meant to reach[/]")
            return 1
        console.print("[bold green]every sample is where it belongs[/]")
        if not once:
            _invite(console, stack)
    return 0


@contextmanager
def _cluster(console: Console) -> Iterator[Stack]:
    """A control plane of the demo's own, with the mixed fleet; it ends with the demo."""
    if _FOLDER.exists():
        if (_FOLDER / "state.json").exists():
            down(_FOLDER)
        shutil.rmtree(_FOLDER)
    console.rule("[bold]a real control plane")
    stack = up(_FOLDER, owner_pid=os.getpid(), console=console)
    try:
        nodes = apply_fleet(stack.access, load_fleet("mixed"))
        console.print(f"kube-apiserver at {stack.server}, {nodes} nodes of five kinds of GPU")
        yield stack
    finally:
        console.print(down(_FOLDER))


@contextmanager
def _operator(console: Console, stack: Stack) -> Iterator[Admin]:
    """CRDs and RBAC installed, the operator running under its own ServiceAccount."""
    console.rule("[bold]the operator")
    admin = Admin(stack.kubeconfig, stack.kubectl, audit_log=stack.audit_log)
    install(admin)
    process = OperatorProcess(stack, _FOLDER / "operator")
    try:
        process.start()
        console.print(f"tonnage run: ready, metrics at http://{process.address}/metrics")
        yield admin
    finally:
        process.close()


def _watch(console: Console, admin: Admin) -> bool:
    """Show the three objects until each is where it belongs; False when the time is over."""
    console.rule("[bold]what becomes of three models")
    deadline = time.monotonic() + _SETTLE_SECONDS
    with Live(console=console, refresh_per_second=8) as live:
        while True:
            deployments = [admin.get("infd", sample.name) for sample in SAMPLES]
            live.update(_picture(deployments))
            reached = all(map(Sample.reached, SAMPLES, deployments))
            if reached or time.monotonic() > deadline:
                break
            time.sleep(_REFRESH_SECONDS)
    console.print()  # a terminal that cannot redraw has the picture's last line open
    return reached


def _picture(deployments: list[Json | None]) -> RenderableType:
    objects = [item for item in deployments if item is not None]
    return Group(_overview(objects), *map(_reasons, objects))


def _overview(objects: list[Json]) -> Table:
    table = Table("NAME", "READY", "POOL", "ACCELERATOR", "TP", "REPLICAS", "REASON", box=None)
    table.title = Text("$ kubectl get infd", style="bold")
    table.title_justify = "left"
    for item in objects:
        status = item.get("status") or {}
        ready = _condition(status, "Ready")
        placement = (status.get("placements") or [{}])[0]
        table.add_row(
            item["metadata"]["name"],
            Text(ready.get("status", ""), style="green" if ready.get("status") == "True" else ""),
            placement.get("pool", ""),
            placement.get("accelerator", ""),
            str(placement.get("tensorParallelSize", "")),
            str(status.get("replicas", "")),
            ready.get("reason", ""),
        )
    return table


def _reasons(item: Json) -> Table:
    """Every pool and why it was taken or not, as status has it."""
    table = Table("POOL", "VERDICT", "TP", "COST/H", "REASON", "WHY", box=None)
    table.title = Text(f"\n{item['metadata']['name']}: status.candidates", style="bold")
    table.title_justify = "left"
    for entry in (item.get("status") or {}).get("candidates") or []:
        table.add_row(
            entry["pool"],
            entry["verdict"],
            str(entry.get("tensorParallelSize", "")),
            entry.get("costPerHour", ""),
            entry["reason"],
            entry["message"],
            style=_STYLES[entry["verdict"]],
        )
    return table


def _write_picture(admin: Admin) -> None:
    """Keep what the terminal showed, for the README: DEMO_PICTURE names the SVG file."""
    target = os.environ.get("DEMO_PICTURE")
    if not target:
        return
    canvas = Console(record=True, width=150, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - ends with the process
    canvas.print(_picture([admin.get("infd", sample.name) for sample in SAMPLES]))
    # The fonts that rich names are on somebody's server; any fixed-width one will do.
    picture = re.sub(r"@font-face \{.*?\}", "", canvas.export_svg(title="make demo"), flags=re.S)
    Path(target).write_text(picture, "utf-8")


def _invite(console: Console, stack: Stack) -> None:
    console.rule("[bold]yours to try")
    sample = SAMPLES[0].name
    console.print(
        f"[bold]export KUBECONFIG={stack.kubeconfig}\n"
        f"export PATH={stack.kubectl.parent}:$PATH[/]\n"
        "kubectl get infd -o wide\n"
        f"kubectl describe infd {sample}\n"
        "kubectl get apool,deploy,pods -o wide\n"
        "kubectl cordon -l amd.com/gpu.device-id=74a1     # MI300X takes no new pods\n"
        f"kubectl scale infd {sample} --replicas=3\n"
        f"kubectl logs deploy/{sample}-mi300x\n"
        "\n[dim]Ctrl-C ends the operator and the cluster[/]",
        highlight=False,
    )
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print("\nending")


def _condition(status: Json, kind: str) -> Json:
    conditions = status.get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(run_cli(main))
