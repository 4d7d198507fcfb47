"""Without its CRDs the operator runs, is not ready, and reports which CRDs to apply."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.harness.admin import SLOW, Admin
from e2e.harness.operator_process import ROOT, OperatorProcess
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User
from e2e.models import inference

KINDS = {
    "inferencedeployments.tonnage.dev": "InferenceDeployment",
    "acceleratorpools.tonnage.dev": "AcceleratorPool",
}


@pytest.fixture
def operator(
    control_plane: Stack, definitions: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator of this test alone, not started."""
    process = OperatorProcess(control_plane, tmp_path_factory.mktemp("operator"))
    yield process
    process.close()


@pytest.fixture
def definitions(installed: Admin) -> Iterator[None]:
    """All definitions are there again after the test."""
    yield
    define(installed, *KINDS)


def define(admin: Admin, *names: str) -> None:
    for name in names:
        plural, _, group = name.partition(".")
        admin.apply(ROOT / "crds" / f"{group}_{plural}.yaml")


def await_unready(admin: Admin, operator: OperatorProcess, *names: str) -> str:
    """Wait until readiness names all of these, and return what it says."""

    def probe() -> str | None:
        code, message = operator.readiness()
        return message if code == 503 and all(name in message for name in names) else None

    return admin.until(
        "readiness to name what is missing", probe, timeout=SLOW, describe=lambda: str(operator)
    )


def await_ready(admin: Admin, operator: OperatorProcess) -> None:
    admin.until(
        "readiness",
        lambda: operator.readiness()[0] == 200,
        timeout=SLOW,
        describe=lambda: str(operator),
    )


def last_wait(operator: OperatorProcess) -> str:
    """What the log says last of what the operator waits for."""
    waits = [line for line in operator.log_lines() if line["message"].startswith("waiting for ")]
    return str(waits[-1]["error"]) if waits else ""


@pytest.mark.parametrize(
    "missing", [[name] for name in KINDS] + [list(KINDS)], ids=lambda names: " and ".join(names)
)
def test_readiness_names_missing_crds_and_the_operator_starts_when_they_exist(
    operator: OperatorProcess, installed: Admin, missing: list[str]
) -> None:
    for name in missing:
        installed.delete("crd", name, timeout=SLOW)
    process = operator.launch()
    message = await_unready(installed, operator, *missing)
    there = set(KINDS) - set(missing)
    assert not [name for name in there if name in message]
    assert "tonnage crds | kubectl apply --server-side -f -" in message
    installed.until(
        "the log to name them, too",
        lambda: all(KINDS[name] in last_wait(operator) for name in missing),
        timeout=SLOW,
        describe=lambda: str(operator),
    )
    define(installed, *missing)
    await_ready(installed, operator)
    assert process.poll() is None


@pytest.mark.parametrize("name", KINDS)
def test_a_deleted_crd_ends_the_process_and_the_next_one_waits_for_it(
    operator: OperatorProcess, installed: Admin, name: str
) -> None:
    operator.start()
    installed.delete("crd", name, timeout=SLOW)
    installed.until(
        "the end", lambda: not operator.running, timeout=SLOW, describe=lambda: str(operator)
    )
    assert operator.launch().poll() is None
    await_unready(installed, operator, name)
    define(installed, name)
    await_ready(installed, operator)


def test_it_reconciles_objects_created_after_the_crds(
    operator: OperatorProcess, installed: Admin, fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    for name in KINDS:
        installed.delete("crd", name, timeout=SLOW)
    operator.launch()
    await_unready(installed, operator, *KINDS)
    define(installed, *KINDS)
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama", timeout=SLOW)
