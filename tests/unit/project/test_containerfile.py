"""The image, as far as possible without building it; e2e/delivery/install/test_image.py runs it."""

import re
import subprocess

import pytest
import yaml

from e2e.programs.containerfile import read_containerfile
from e2e.programs.image import ROOT, shipped_container, stages

PINNED = "python@sha256:" + "a" * 64


def make(*arguments):
    # The environment that runs the tests is the one that `install` would make.
    return subprocess.run(
        ["make", "--no-print-directory", "-o", "install", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_runs_the_command_of_the_deployment():
    _, final = stages()
    container = shipped_container()
    assert final.words("ENTRYPOINT") == container["command"]
    assert final.words("CMD") == container["args"]


def test_it_runs_as_the_user_of_the_deployment():
    _, final = stages()
    deployment = yaml.safe_load((ROOT / "manifests/base/deployment.yaml").read_text())
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    assert final.texts("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]


def test_both_stages_use_one_base_image_without_a_default():
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    assert re.findall(r"^ARG BASE.*$", text, re.MULTILINE)[0] == "ARG BASE"
    assert [stage.texts("FROM")[0].split()[0] for stage in stages()] == ["${BASE}", "${BASE}"]


def test_the_build_context_has_exactly_the_copied_files():
    copied = {name for stage in stages() for copy in stage.copies for name in copy.sources}
    lines = (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == copied
    assert (ROOT / ".dockerignore").readlink().name == ".containerignore"


@pytest.mark.parametrize("base", ["", "python:3.13-slim", "python@sha256:abc", f"@{PINNED[7:]}"])
def test_a_base_without_a_digest_is_refused(base):
    result = make("image", f"BASE={base}", "ENGINE=echo")
    assert result.returncode == 2
    assert f"BASE is '{base}', expected an image with Python by digest" in result.stderr


def test_a_missing_engine_is_reported():
    result = make("image", f"BASE={PINNED}", "ENGINE=")
    assert result.returncode == 2
    assert "none of podman, docker and buildah is on PATH" in result.stderr


def test_an_engine_gets_the_base_the_version_and_the_revision():
    result = make("image", f"BASE={PINNED}", "ENGINE=echo", "VERSION=1.2.3")
    assert result.returncode == 0, result.stderr
    (given,) = [line for line in result.stdout.splitlines() if line.startswith("build --file")]
    assert f"--tag tonnage:1.2.3 --build-arg BASE={PINNED} --build-arg VERSION=1.2.3" in given


def test_instructions_are_parsed_by_stage(tmp_path):
    path = tmp_path / "Containerfile"
    path.write_text(
        "# a comment\nARG BASE\nFROM ${BASE} AS one\nCOPY a b ./\nRUN x \\\n && y\n\n"
        'FROM ${BASE}\nCOPY --from=one /o /o\nENV A=1 \\\n    B=\'2 3\'\nCMD ["a", "b c"]\n'
    )
    one, final = read_containerfile(path)
    assert [(copy.sources, copy.target) for copy in one.copies] == [(("a", "b"), "./")]
    assert [text.split() for text in one.texts("RUN")] == [["x", "&&", "y"]]
    assert final.copies == []
    assert final.environment == {"A": "1", "B": "2 3"}
    assert final.words("CMD") == ["a", "b c"]
