"""The programs of the control plane: found, or built from pinned Go modules.

Order: the folder that KUBEBUILDER_ASSETS names, PATH, the cache, and at last `go build`. A program
on PATH counts only in the pinned minor version, since an old kubectl that happens to be installed
must not decide what a test sees; KUBEBUILDER_ASSETS is somebody's explicit wish and is believed.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from e2e.failure import HarnessError, run_cli

_MODULES = Path(__file__).parent / "go"
_MINIMUM_GO = (1, 26)
_FLAGS = "-mod=readonly -buildvcs=false"  # readonly: go.sum decides, a build never edits it


@dataclass(frozen=True)
class Tool:
    """One Go module of ours, what it pins and which programs its build yields."""

    name: str
    module: str
    programs: Mapping[str, str]  # program -> name of the binary that `go build` writes
    stamp: tuple[str, ...] = ()  # variables that the upstream release build sets

    @property
    def folder(self) -> Path:
        """The folder of its go.mod."""
        return _MODULES / self.name

    @property
    def version(self) -> str:
        """The pinned version, read from go.mod so that it stands in one place."""
        text = (self.folder / "go.mod").read_text(encoding="utf-8")
        found = re.search(
            rf"^\s*(?:require\s+)?{re.escape(self.module)} (v\S+)", text, re.MULTILINE
        )
        if not found:
            raise HarnessError(f"{self.folder / 'go.mod'}: no version of {self.module} is pinned")
        return found[1]

    @property
    def minor(self) -> str:
        """The pinned version without its patch, as `1.35`."""
        return ".".join(self.version.lstrip("v").split(".")[:2])

    def linker_flags(self) -> str:
        """Flags that make the server name its version; without them it calls itself v0.0.0."""
        major, minor = self.minor.split(".")
        values = {"version": self.version, "major": major, "minor": minor}
        return " ".join(["-s", "-w", *(f"-X {line.format(**values)}" for line in self.stamp)])


_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
TOOLS = (
    Tool("etcd", "go.etcd.io/etcd/server/v3", {"etcd": "server"}),
    Tool(
        "kwok",
        "sigs.k8s.io/kwok",
        {"kwok": "kwok"},
        stamp=("sigs.k8s.io/kwok/pkg/consts.Version={version}",),
    ),
    Tool(
        "kubernetes",
        "k8s.io/kubernetes",
        {name: name for name in _KUBERNETES},
        stamp=(
            "k8s.io/component-base/version.gitVersion={version}",
            "k8s.io/component-base/version.gitMajor={major}",
            "k8s.io/component-base/version.gitMinor={minor}",
        ),
    ),
)
PROGRAMS = {program: tool for tool in TOOLS for program in tool.programs}


@dataclass(frozen=True, slots=True)
class Binary:
    """A program on disk and where it came from: assets, path, cache or build."""

    program: str
    path: Path
    origin: str


def cache_folder(env: Mapping[str, str]) -> Path:
    """Return where builds are kept: $TONNAGE_CACHE, else the user's cache folder."""
    if env.get("TONNAGE_CACHE"):
        return Path(env["TONNAGE_CACHE"])
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]) / "tonnage"
    return Path(env.get("HOME") or Path.home()) / ".cache" / "tonnage"


def reported_version(program: str, path: Path) -> str:
    """Ask a program for its version; empty when it gives none within ten seconds."""
    arguments = ["version", "--client"] if program == "kubectl" else ["--version"]
    try:
        answer = subprocess.run(
            [str(path), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"v?(\d+\.\d+\.\d+)", answer.stdout)
    return found[1] if found else ""


@dataclass
class Binaries:
    """Where programs are looked for, in an environment that tests can make up."""

    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    version_of: Callable[[str, Path], str] = reported_version

    def cached(self, tool: Tool) -> Path:
        """Return the folder that holds, or would hold, the build of a tool."""
        return cache_folder(self.env) / "bin" / f"{tool.name}-{tool.version}"

    def find(self, program: str) -> Binary | None:
        """Return the first usable binary in the documented order, None when it must be built."""
        assets = self.env.get("KUBEBUILDER_ASSETS")
        if assets and os.access(Path(assets) / program, os.X_OK):
            return Binary(program, Path(assets) / program, "assets")
        on_path = shutil.which(program, path=self.env.get("PATH", ""))
        tool = PROGRAMS[program]
        if on_path and self.version_of(program, Path(on_path)).startswith(f"{tool.minor}."):
            return Binary(program, Path(on_path), "path")
        cached = self.cached(tool) / program
        return Binary(program, cached, "cache") if os.access(cached, os.X_OK) else None

    def ensure(self, announce: Callable[[str], None] = lambda _: None) -> dict[str, Path]:
        """Return every program's path, building the tools of which one is missing."""
        found = {program: self.find(program) for program in PROGRAMS}
        missing = [
            tool for tool in TOOLS if any(found[program] is None for program in tool.programs)
        ]
        if missing:
            check_go(self.env)
        for tool in missing:
            build(tool, self.cached(tool), self.env, announce)
        return {
            program: binary.path if binary else self.cached(PROGRAMS[program]) / program
            for program, binary in found.items()
        }


def check_go(env: Mapping[str, str]) -> None:
    """Refuse early, with what to install, when Go is missing or too old to build."""
    wanted = ".".join(map(str, _MINIMUM_GO))
    remedy = (
        f"install Go {wanted} or newer and put it on PATH, or set KUBEBUILDER_ASSETS to a folder "
        f"that holds {', '.join(PROGRAMS)}"
    )
    go = shutil.which("go", path=env.get("PATH", ""))
    if not go:
        raise HarnessError(f"no `go` on PATH, and the control plane is not built yet: {remedy}")
    version = subprocess.run(
        [go, "env", "GOVERSION"], env=_go_env(env), capture_output=True, text=True, check=False
    ).stdout.strip()
    found = re.match(r"go(\d+)\.(\d+)", version)
    if not found or (int(found[1]), int(found[2])) < _MINIMUM_GO:
        raise HarnessError(
            f"{go} is {version or 'not a Go'}, expected go{wanted} or newer: {remedy}"
        )


def _go_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment with what a repeatable build fixes."""
    return {**env, "GOFLAGS": _FLAGS, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off"}


@contextmanager
def _locked(path: Path, announce: Callable[[str], None]) -> Iterator[None]:
    """Hold a file lock, which the kernel drops with the process, even an interrupted one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            announce(f"another build holds {path}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(
    tool: Tool, target: Path, env: Mapping[str, str], announce: Callable[[str], None]
) -> None:
    """Build one tool into `target`, which appears whole or not at all."""
    with _locked(target.parent / f".{tool.name}.lock", announce):
        if all(os.access(target / program, os.X_OK) for program in tool.programs):
            return  # another build finished while this one waited
        for stale in target.parent.glob(f".build-{tool.name}-*"):
            shutil.rmtree(stale, ignore_errors=True)  # of a build that was interrupted
        work = Path(tempfile.mkdtemp(prefix=f".build-{tool.name}-", dir=target.parent))
        try:
            _compile(tool, work, env, announce)
            shutil.rmtree(target, ignore_errors=True)
            work.chmod(0o755)
            work.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _compile(
    tool: Tool, work: Path, env: Mapping[str, str], announce: Callable[[str], None]
) -> None:
    """Run `go build` and give each binary the name it is known by."""
    announce(f"building {tool.name} {tool.version}: {', '.join(tool.programs)}")
    started = time.monotonic()
    jobs = str(os.cpu_count() or 1)
    command = ["go", "build", "-p", jobs, "-trimpath", "-ldflags", tool.linker_flags()]
    result = subprocess.run(
        [*command, "-o", f"{work}/", "tool"],
        cwd=tool.folder,
        env=_go_env(env),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        lines = "\n  ".join(result.stderr.strip().splitlines()[-15:])
        raise HarnessError(
            f"go build of {tool.name} {tool.version} in {tool.folder} ended with "
            f"{result.returncode}; its last words:\n  {lines}"
        )
    for program, built in tool.programs.items():
        if built != program:
            (work / built).rename(work / program)
    announce(f"built {tool.name} {tool.version} in {time.monotonic() - started:.0f} s")


@contextmanager
def progress(console: Console) -> Iterator[Callable[[str], None]]:
    """Show what is being built and for how long: a spinner on a terminal, else plain lines."""
    if not console.is_terminal:
        yield lambda line: console.print(line, highlight=False, soft_wrap=True)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:

        def announce(line: str) -> None:
            for running in bars.tasks:
                if not running.finished:
                    bars.update(running.id, total=1, completed=1)
            bars.add_task(line, total=1 if line.startswith("built") else None)

        yield announce


def main() -> int:
    """Find or build all programs and show where each one is."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.binaries",
        description="Find the programs of the control plane, and build those that are missing.",
        epilog="Looked for in KUBEBUILDER_ASSETS, PATH (same minor version), the cache "
        "($TONNAGE_CACHE, $XDG_CACHE_HOME/tonnage or ~/.cache/tonnage); built with Go.",
    )
    parser.add_argument("--find", action="store_true", help="only find, build nothing")
    arguments = parser.parse_args()
    console, binaries = Console(), Binaries()
    if not arguments.find:
        with progress(console) as announce:
            binaries.ensure(announce)
    table = Table("program", "version", "from", "path")
    missing = False
    for program, tool in PROGRAMS.items():
        binary = binaries.find(program)
        missing = missing or binary is None
        where = (binary.origin, str(binary.path)) if binary else ("missing", "-")
        table.add_row(program, tool.version, *where)
    console.print(table)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(run_cli(main))
