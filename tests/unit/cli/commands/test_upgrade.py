"""`upgrade`: the replicas run with what a later operator would choose, on the user's word."""

import asyncio
import re

import pytest

from tests.support.api_server.live_editor import edit
from tests.support.api_server.live_fake import connect_to
from tests.support.faults.later_operator import LATER_RELEASE, LATER_REPOSITORY, take_over
from tests.support.in_memory.cluster import MI300X
from tests.support.in_memory.serving import SETTLED, served
from tonnage.cli.commands import explain as explain_module
from tonnage.cli.main import main

__all__ = ["take_over"]

IMAGE = f"{LATER_REPOSITORY}:v{LATER_RELEASE}"


@pytest.fixture
def run(capsys, monkeypatch):
    """Exit code of a command on a cluster, and its output on stdout or stderr."""

    def run(cluster, *words):
        edit(monkeypatch, cluster.api)
        code = main(list(words))
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


@pytest.fixture
def cluster(take_over):
    """An object that a later operator has taken over, by its own catalogue."""
    cluster = asyncio.run(served(MI300X))
    take_over(cluster)
    asyncio.run(cluster.settle())
    return cluster


def test_the_available_update_is_taken(run, cluster):
    code, output = run(cluster, "upgrade", "llama")
    assert code == 0
    assert re.fullmatch(
        rf"chat/llama: changing vLLM from 0.32.0 to {LATER_RELEASE}, image from \S+ to {IMAGE}, .*"
        r" \(spec.rollout.upgradedAt: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\)\n",
        output,
    )
    asyncio.run(cluster.settle())
    assert cluster.conditions() == SETTLED
    (container,) = cluster.deployment("llama-mi300x")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE
    code, output = run(cluster, "upgrade", "llama")
    assert code == 2
    assert "chat/llama: no update is available" in output


def test_nothing_is_written_where_no_update_is_available(run):
    cluster = asyncio.run(served(MI300X))
    before = cluster.inference_deployment()
    assert run(cluster, "upgrade", "llama")[0] == 2
    assert cluster.inference_deployment() == before


def test_with_manual_approval_the_upgrade_waits_for_it(run, take_over):
    cluster = asyncio.run(served(MI300X, approval="Manual", approvedPlan=hash_of_plan()))
    take_over(cluster)
    asyncio.run(cluster.settle())
    code, output = run(cluster, "upgrade", "llama")
    assert code == 0
    assert output.endswith(", once the plan is approved\n")
    asyncio.run(cluster.settle())
    proposed = cluster.status()["proposedPlan"]
    assert proposed["image"] == IMAGE
    assert cluster.status()["placements"][0]["image"] != IMAGE


def hash_of_plan():
    """The hash of the first plan of the object."""
    cluster = asyncio.run(served(MI300X))
    cluster.apply("llama", {**cluster.inference_deployment()["spec"], "approval": "Manual"})
    asyncio.run(cluster.settle())
    return cluster.status()["plan"]


def test_explain_names_the_update_and_the_command(capsys, monkeypatch, cluster):
    connect_to(monkeypatch, cluster.api, explain_module)
    monkeypatch.setattr("tonnage.cli.commands.explain.load_catalog", lambda: cluster.world.catalog)
    assert main(["explain", "llama"]) == 0
    shown = capsys.readouterr().out
    command = "`kubectl tonnage upgrade llama -n chat` takes the available update"
    assert f"{command}: vLLM from 0.32.0 to {LATER_RELEASE}, image from " in shown
