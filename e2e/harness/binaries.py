"""The programs that tests run on: found, or built from pinned Go modules.

Order: the folder that KUBEBUILDER_ASSETS names, PATH, the cache, and at last `go build`. A program
on PATH counts only in the pinned minor version, since an old kubectl that happens to be installed
must not decide what a test sees; KUBEBUILDER_ASSETS is an explicit choice and is used.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from e2e.harness.failure import HarnessError, run_cli
from e2e.harness.tools import CONTROL_PLANE, DELIVERY, PROGRAMS, TOOLS, Tool

_MINIMUM_GO = (1, 26)
_FLAGS = "-mod=readonly -buildvcs=false"  # readonly: go.sum decides, a build never edits it


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
    arguments = ("version", "--client") if program == "kubectl" else PROGRAMS[program].ask
    try:
        answer = subprocess.run(
            [str(path), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"v?(\d+\.\d+\.\d+)", answer.stdout)
    return match[1] if match else ""


@dataclass
class Binaries:
    """Where programs are looked for, in an environment that tests can make up."""

    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    version_of: Callable[[str, Path], str] = reported_version

    def cached(self, tool: Tool) -> Path:
        """Return the folder that holds, or would hold, the build of a tool."""
        return cache_folder(self.env) / "bin" / tool.build

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

    def ensure(
        self,
        tools: Sequence[Tool] = CONTROL_PLANE,
        announce: Callable[[str], None] = lambda _: None,
    ) -> dict[str, Path]:
        """Return the path of every program of `tools`, building those of which one is missing."""
        binaries = {program: self.find(program) for tool in tools for program in tool.programs}
        missing = [
            tool for tool in tools if any(binaries[program] is None for program in tool.programs)
        ]
        if missing:
            check_go(self.env, missing)
        for tool in missing:
            build(tool, self.cached(tool), self.env, announce)
        return {
            program: binary.path if binary else self.cached(PROGRAMS[program]) / program
            for program, binary in binaries.items()
        }


def program_path(program: str) -> Path:
    """Return where one program is, building its tool when it is nowhere."""
    return Binaries().ensure((PROGRAMS[program],))[program]


def check_go(env: Mapping[str, str], tools: Sequence[Tool]) -> None:
    """Refuse early, with what to install, when Go is missing or too old to build `tools`."""
    wanted = ".".join(map(str, _MINIMUM_GO))
    programs = ", ".join(program for tool in tools for program in tool.programs)
    remedy = (
        f"install Go {wanted} or newer and put it on PATH, or set KUBEBUILDER_ASSETS to a folder "
        f"that holds {programs}"
    )
    go = shutil.which("go", path=env.get("PATH", ""))
    if not go:
        raise HarnessError(f"no `go` on PATH, and {programs} are not built yet: {remedy}")
    version = subprocess.run(
        [go, "env", "GOVERSION"], env=go_env(env), capture_output=True, text=True, check=False
    ).stdout.strip()
    match = re.match(r"go(\d+)\.(\d+)", version)
    if not match or (int(match[1]), int(match[2])) < _MINIMUM_GO:
        raise HarnessError(
            f"{go} is {version or 'not a Go'}, expected go{wanted} or newer: {remedy}"
        )


def go_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment with what a repeatable build fixes."""
    return {**env, "GOFLAGS": _FLAGS, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off"}


@contextmanager
def locked(path: Path, announce: Callable[[str], None]) -> Iterator[None]:
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
    with locked(target.parent / f".{tool.name}.lock", announce):
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
    announce(f"building {tool.name} {tool.release}: {', '.join(tool.programs)}")
    started = time.monotonic()
    jobs = str(os.cpu_count() or 1)
    command = ["go", "build", "-p", jobs, "-trimpath", "-ldflags", tool.linker_flags()]
    command += ["-tags", ",".join(tool.tags)]
    result = subprocess.run(
        [*command, "-o", f"{work}/", "tool"],
        cwd=tool.folder,
        env=go_env(env),
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
    announce(f"built {tool.name} {tool.release} in {time.monotonic() - started:.0f} s")


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
    """Find or build programs and show where each one is."""
    arguments = _parser().parse_args()
    chosen = [tool for group in arguments.tools for tool in group]
    tools = [tool for tool in TOOLS if tool in chosen] or TOOLS
    console, binaries = Console(), Binaries()
    if not arguments.find:
        with progress(console) as announce:
            binaries.ensure(tools, announce)
    table = Table("program", "version", "from", "path")
    missing = False
    for tool in tools:
        for program in tool.programs:
            binary = binaries.find(program)
            missing = missing or binary is None
            where = (binary.origin, str(binary.path)) if binary else ("missing", "-")
            table.add_row(program, tool.release, *where)
    console.print(table)
    return 1 if missing else 0


_NAMES: Mapping[str, Sequence[Tool]] = {
    "control-plane": CONTROL_PLANE,
    "delivery": DELIVERY,
    **{tool.name: (tool,) for tool in TOOLS},
}


def _named(name: str) -> Sequence[Tool]:
    """Return the tools of one name on the command line."""
    if name not in _NAMES:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(_NAMES)}")
    return _NAMES[name]


def _parser() -> argparse.ArgumentParser:
    """Return the command line of `python -m e2e.harness.binaries`."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.harness.binaries",
        description="Find the programs that tests run on, and build those that are missing.",
        epilog="Looked for in KUBEBUILDER_ASSETS, PATH (same minor version), the cache "
        "($TONNAGE_CACHE, $XDG_CACHE_HOME/tonnage or ~/.cache/tonnage); built with Go.",
    )
    parser.add_argument(
        "tools",
        nargs="*",
        type=_named,
        metavar="NAME",
        help=f"a group or a tool: {', '.join(_NAMES)}; without one all that tests need",
    )
    parser.add_argument("--find", action="store_true", help="only find, build nothing")
    return parser


if __name__ == "__main__":
    sys.exit(run_cli(main))
