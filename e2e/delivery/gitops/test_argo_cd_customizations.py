"""Health and actions of our kinds: the cases next to the Lua, evaluated by the real Argo CD."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.delivery.gitops.overrides import changed_by, overrides
from e2e.harness.rest import Json
from e2e.programs.argo_cd_settings import CUSTOMIZATIONS, SETTINGS, render_settings

KINDS = CUSTOMIZATIONS / "tonnage.dev"
A_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
ANY_TIME = "0001-01-01T00:00:00Z"  # in the expected output, as in Argo CD's own tests


def cases(path: str, part: str) -> list[Any]:
    """The cases of every file of this name, with the folder they are relative to."""
    return [
        pytest.param(file.parent, case, id=f"{file.parent.relative_to(KINDS)}-{number}")
        for file in sorted(KINDS.rglob(path))
        for number, case in enumerate(yaml.safe_load(file.read_text("utf-8"))[part])
    ]


def test_the_shipped_settings_are_generated_from_the_lua_files() -> None:
    assert SETTINGS.read_text("utf-8") == render_settings(), "run `make argo-cd`"


@pytest.mark.parametrize(("folder", "case"), cases("health_test.yaml", "tests"))
def test_health(folder: Path, case: Json) -> None:
    want = case["healthStatus"]
    result = overrides("health", folder / case["inputPath"])
    assert result.stdout == f"STATUS: {want['status']}\nMESSAGE: {want['message']}\n", result.stderr


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize(("minutes", "want"), [(20, "Progressing"), (40, "Degraded")])
def test_waiting_for_gpus_is_progressing_for_half_an_hour_in_every_time_zone(
    tmp_path: Path, zone: str, minutes: int, want: str
) -> None:
    sample = KINDS / "InferenceDeployment" / "testdata" / "progressing_waiting_for_gpus.yaml"
    waiting = yaml.safe_load(sample.read_text("utf-8"))
    since = datetime.now(UTC) - timedelta(minutes=minutes)
    for condition in waiting["status"]["conditions"]:
        condition["lastTransitionTime"] = f"{since:%Y-%m-%dT%H:%M:%SZ}"
    path = tmp_path / "waiting.yaml"
    path.write_text(yaml.safe_dump(waiting), encoding="utf-8")
    assert f"STATUS: {want}" in overrides("health", path, zone=zone).stdout


def test_every_input_file_has_a_case() -> None:
    for folder in (path.parent for path in KINDS.rglob("testdata")):
        (tests,) = folder.glob("*_test.yaml")
        text = tests.read_text("utf-8")
        for path in (folder / "testdata").iterdir():
            assert f"testdata/{path.name}" in text, f"{path} is in no case of {tests}"


@pytest.mark.parametrize(("folder", "case"), cases("action_test.yaml", "discoveryTests"))
def test_available_actions(folder: Path, case: Json) -> None:
    result = overrides("list-actions", folder / case["inputPath"])
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["NAME", "DISABLED"], result.stderr
    want = {action["name"]: str(action["disabled"]).lower() for action in case["result"]}
    assert dict(rows[1:]) == want


@pytest.mark.parametrize(("folder", "case"), cases("action_test.yaml", "actionTests"))
def test_action(folder: Path, case: Json) -> None:
    path = folder / case["inputPath"]
    if "expectedErrorMessage" in case:
        result = overrides("run-action", path, case["action"])
        assert result.returncode != 0
        assert case["expectedErrorMessage"] in result.stderr
        return
    changed = A_TIME.sub(ANY_TIME, changed_by(case["action"], path))
    want = yaml.safe_load((folder / case["expectedOutputPath"]).read_text("utf-8"))
    assert yaml.safe_load(changed) == want
