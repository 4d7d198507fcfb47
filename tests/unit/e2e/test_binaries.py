"""Where the programs of the control plane are looked for, and in which order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.harness.binaries import Binaries, build, cache_folder, check_go, main
from e2e.harness.failure import HarnessError
from e2e.harness.tools import CONTROL_PLANE, DELIVERY, PROGRAMS, TOOLS, Tool

APISERVER = "kube-apiserver"


def program(folder: Path, name: str = APISERVER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def says(version: str) -> Callable[[str, Path], str]:
    return lambda _program, _path: version


def everywhere(tmp_path: Path) -> dict[str, str]:
    env = {
        "KUBEBUILDER_ASSETS": str(tmp_path / "assets"),
        "PATH": str(tmp_path / "path"),
        "TONNAGE_CACHE": str(tmp_path / "cache"),
    }
    program(tmp_path / "assets")
    program(tmp_path / "path")
    program(Binaries(env).cached(PROGRAMS[APISERVER]))
    return env


def origin(env: dict[str, str], version: str = "1.35.9") -> str | None:
    binary = Binaries(env, says(version)).find(APISERVER)
    return binary.origin if binary else None


def test_the_order_is_assets_then_path_then_cache_then_build(tmp_path: Path) -> None:
    env = everywhere(tmp_path)
    assert origin(env) == "assets"
    del env["KUBEBUILDER_ASSETS"]
    assert origin(env) == "path"
    env["PATH"] = str(tmp_path / "nowhere")
    assert origin(env) == "cache"
    env["TONNAGE_CACHE"] = str(tmp_path / "empty")
    assert origin(env) is None


@pytest.mark.parametrize("version", ["1.32.4", "1.36.0", "1.3.5", "1.350.0", ""])
def test_a_program_on_path_with_another_minor_version_is_skipped(
    tmp_path: Path, version: str
) -> None:
    env = everywhere(tmp_path)
    del env["KUBEBUILDER_ASSETS"]
    assert origin(env, version) == "cache"


def test_assets_of_any_version_are_used(tmp_path: Path) -> None:
    assert origin(everywhere(tmp_path), "1.30.0") == "assets"


def test_assets_without_a_program_are_skipped(tmp_path: Path) -> None:
    env = everywhere(tmp_path)
    (tmp_path / "assets" / APISERVER).unlink()
    assert origin(env) == "path"


@pytest.mark.parametrize(
    ("env", "want"),
    [
        ({"TONNAGE_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/tonnage"),
        ({"HOME": "/c"}, "/c/.cache/tonnage"),
    ],
)
def test_the_environment_sets_the_cache_folder(env: dict[str, str], want: str) -> None:
    assert cache_folder(env) == Path(want)


def test_the_cache_is_keyed_by_tool_version_and_tags(tmp_path: Path) -> None:
    tool = PROGRAMS[APISERVER]
    cached = Binaries({"TONNAGE_CACHE": str(tmp_path)}).cached(tool)
    assert cached == tmp_path / "bin" / f"kubernetes-{tool.version}"
    assert (
        Binaries({"TONNAGE_CACHE": str(tmp_path)}).cached(replace(tool, tags=("lean",))) != cached
    )


def test_each_tool_pins_a_version_and_a_sum_for_it() -> None:
    for tool in TOOLS:
        assert re.fullmatch(r"v\d+\.\d+\.\d+", tool.version)
        sums = (tool.folder / "go.sum").read_text()
        assert f"{tool.module} {tool.version} h1:" in sums


def test_the_kubernetes_servers_name_their_version() -> None:
    flags = PROGRAMS[APISERVER].linker_flags()
    assert f"gitVersion={PROGRAMS[APISERVER].version}" in flags
    assert "gitMajor=1" in flags


def test_a_module_with_other_version_numbers_is_identified_by_its_release() -> None:
    prometheus = PROGRAMS["promtool"]
    assert prometheus.version.startswith("v0.3")
    assert prometheus.release.startswith("v3.")
    assert prometheus.minor == ".".join(prometheus.release.removeprefix("v").split(".")[:2])
    assert f"Version={prometheus.release.removeprefix('v')}" in prometheus.linker_flags()


def go(folder: Path, answer: str) -> None:
    path = program(folder, "go")
    path.write_text(f"#!/bin/sh\n{answer}\n")


@pytest.mark.parametrize("version", ["go1.25.9", "devel"])
def test_an_old_go_is_refused_with_the_version_to_install(tmp_path: Path, version: str) -> None:
    go(tmp_path, f"echo {version}")
    with pytest.raises(HarnessError, match=rf"{version}.*expected go1\.26.*install Go 1\.26"):
        check_go({"PATH": str(tmp_path)}, TOOLS)


@pytest.mark.parametrize("version", ["go1.26.0", "go1.26.8", "go1.30", "go2.0"])
def test_a_newer_go_is_accepted(tmp_path: Path, version: str) -> None:
    go(tmp_path, f"echo {version}")
    check_go({"PATH": str(tmp_path)}, TOOLS)


def test_without_go_the_error_names_the_alternatives(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"no `go` on PATH.*KUBEBUILDER_ASSETS.*etcd"):
        check_go({"PATH": str(tmp_path)}, TOOLS)


def built(tool: Tool, cache: Path) -> None:
    for name in tool.programs:
        program(Binaries({"TONNAGE_CACHE": str(cache)}).cached(tool), name)


def test_a_stack_needs_no_delivery_tool(tmp_path: Path) -> None:
    for tool in CONTROL_PLANE:
        built(tool, tmp_path)
    without_go = Binaries({"TONNAGE_CACHE": str(tmp_path), "PATH": str(tmp_path)})
    assert set(without_go.ensure()) == {name for tool in CONTROL_PLANE for name in tool.programs}
    with pytest.raises(HarnessError, match=r"helm, promtool, .* are not built"):
        without_go.ensure(DELIVERY)


@pytest.mark.parametrize(
    ("name", "want", "never"),
    [("helm", ["helm"], ["etcd", "promtool"]), ("control-plane", ["etcd", "kubectl"], ["helm"])],
)
def test_the_command_line_names_a_tool_or_a_group(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    want: list[str],
    never: list[str],
) -> None:
    for variable in ("TONNAGE_CACHE", "PATH", "KUBEBUILDER_ASSETS"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr("sys.argv", ["binaries", "--find", name])
    assert main() == 1
    output = capsys.readouterr().out
    assert all(f" {program} " in output for program in want)
    assert not any(f" {program} " in output for program in never)


ETCD = next(tool for tool in TOOLS if tool.name == "etcd")


def run_build(tmp_path: Path, script: str) -> Path:
    go(tmp_path / "go", script)
    target = tmp_path / "cache" / "bin" / f"{ETCD.name}-{ETCD.version}"
    env = {"PATH": f"{tmp_path / 'go'}:/usr/bin:/bin", "HOME": str(tmp_path)}
    build(ETCD, target, env, lambda _: None)
    return target


# The output folder is the argument before the last one.
_BUILDS = 'while [ $# -gt 2 ]; do shift; done; touch "$1/server"; chmod +x "$1/server"'


def test_a_build_is_installed_atomically_under_the_usual_names(tmp_path: Path) -> None:
    stale = tmp_path / "cache" / "bin" / ".build-etcd-interrupted"
    stale.mkdir(parents=True)
    target = run_build(tmp_path, _BUILDS)
    assert [path.name for path in target.iterdir()] == ["etcd"]
    assert not list(target.parent.glob(".build-*"))


def test_a_failed_build_leaves_no_file_and_reports_the_error(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="no space left"):
        run_build(tmp_path, "echo no space left >&2; exit 1")
    folder = tmp_path / "cache" / "bin"
    assert [path.name for path in folder.iterdir()] == [".etcd.lock"]


def test_an_existing_build_is_not_repeated(tmp_path: Path) -> None:
    run_build(tmp_path, _BUILDS)
    run_build(tmp_path, "exit 1")


def test_a_tool_without_a_pin_is_an_error() -> None:
    with pytest.raises(HarnessError, match="no version of no/such/module is pinned"):
        _ = Tool("etcd", "no/such/module", {}).version
