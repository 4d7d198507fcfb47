"""`kubectl tonnage` shows the same fleet, reasons and plan as the operator."""

from __future__ import annotations

import json

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.plugin import Plugin
from e2e.journeys.pools import await_pool, counts
from e2e.journeys.user import User, condition
from e2e.models import inference


def test_it_shows_the_same_fleet_as_the_operator(
    fleet: UseFleet, user: User, plugin: Plugin
) -> None:
    fleet("mixed")
    user.apply(inference("llama"))
    user.wait_ready("llama")
    taken = (32, 32, 31, 8)
    await_pool(
        user.admin,
        "amd-mi300x",
        lambda pool: counts(pool) == taken,
        why="one GPU taken",
        timeout=90,
    )
    items = json.loads(plugin.run("pools", "-o", "json"))["items"]
    pools = {item["name"]: counts(item) for item in items}
    assert pools["amd-mi300x"] == taken
    user.admin.until(
        "the operator to report the same pools",
        lambda: reported(user) == pools,
        timeout=90,
        describe=lambda: f"{reported(user)}, expected {pools}",
    )
    table = plugin.run("pools")
    assert "amd-mi300x" in table
    assert "h100-0" in table


def reported(user: User) -> dict[str, tuple[int, ...]]:
    """The GPUs of each pool, as the operator reports them."""
    pools = user.admin.items("apool")
    return {pool["metadata"]["name"]: counts(pool.get("status") or {}) for pool in pools}


def test_it_explains_one_object(fleet: UseFleet, user: User, plugin: Plugin) -> None:
    fleet("mixed")
    user.apply(inference("llama"))
    user.wait_ready("llama")
    user.await_quiet()
    status = user.status("llama")
    story = plugin.run("explain", "llama")
    for words in ("LlamaForCausalLM", "amd-mi300x", "nvidia-h100-sxm-80gb", "CostsMore", "Ready"):
        assert words in story
    (pod,) = user.pods("llama")
    assert "amd-mi300x" in plugin.run("explain", f"pod/{pod}")
    explained = json.loads(plugin.run("explain", "llama", "-o", "json"))
    assert explained["status"]["candidates"] == status["candidates"]
    plugin.run("explain", "missing", exit_code=2)


def test_its_plan_equals_what_the_operator_does(
    fleet: UseFleet, user: User, plugin: Plugin
) -> None:
    fleet("tiny")
    manifest = inference("llama", "llama-3.1-8b")
    (planned,) = plan(plugin, manifest)
    user.apply(manifest)
    status = user.wait_ready("llama")
    (expected,) = planned["status"]["placements"]
    (actual,) = status["placements"]
    same = {"pool", "tensorParallelSize", "image", "message", "costPerHour"}
    assert {key: actual[key] for key in same} == {key: expected[key] for key in same}
    (deployment,) = user.children("deployments", "llama")
    (rendered,) = (one for one in planned["manifests"] if one["kind"] == "Deployment")
    assert rendered["metadata"]["name"] == deployment["metadata"]["name"]
    huge = inference("huge", "deepseek-v3", placement={"accelerators": ["h100-sxm-80gb"]})
    (refused,) = plan(plugin, huge, exit_code=3)
    assert condition(refused["status"], "Placed")["reason"] == "DoesNotFit"
    plan(plugin, inference("bad", replicas=-1), exit_code=2)
    assert user.admin.get("infd", "huge") is None


def plan(plugin: Plugin, manifest: Json, *, exit_code: int = 0) -> list[Json]:
    """The items that `plan` prints for a manifest, none where it refuses it."""
    arguments = ("plan", "-f", "-", "-o", "json")
    printed = plugin.run(*arguments, text=json.dumps(manifest), exit_code=exit_code)
    items: list[Json] = json.loads(printed)["items"] if printed else []
    return items
