"""What the Hub says of adapters: the rank of their buffers, and that a Hub that is down restarts
nothing."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest

from tests.support.faults.later_operator import take_over
from tests.support.in_memory.cluster import MI300X, NAMESPACE, Cluster, spec_of, write_count
from tests.support.in_memory.serving import SETTLED
from tests.support.production.claims import volume_claim
from tonnage.api.conditions import Reason
from tonnage.api.names import ANNOTATION_ADAPTER_FACTS
from tonnage.checkpoint.adapter import AdapterFacts, parse_adapter
from tonnage.checkpoint.hub.errors import ADAPTER_INPUTS
from tonnage.checkpoint.lookup import AdapterAnswer, ModelPending, ModelUnavailable
from tonnage.kube.kinds import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SERVICES

__all__ = ["take_over"]

COMMIT = "c0ffee" + "0" * 34
DOWN = ModelUnavailable(Reason.MODEL_SOURCE_UNREACHABLE, "the Hub does not answer", 30.0)
DENIED = ModelUnavailable(Reason.MODEL_ACCESS_DENIED, "the token is revoked", 30.0)
DORA = ModelUnavailable(Reason.INVALID_MODEL, "use_dora is set", 30.0)
UNSEEN = ModelUnavailable(
    Reason.MODEL_ACCESS_DENIED,
    f"not seen; set {ADAPTER_INPUTS.token}",
    30.0,
)
PENDING = ModelPending("reading acme/sql from the Hub")


def file(
    rank: int = 24, hidden_size: int | None = None, modules: Sequence[str] | str = ("q_proj",)
) -> AdapterFacts:
    config = {
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": modules,
        "base_model_name_or_path": "acme/base",
    }
    return replace(parse_adapter(json.dumps(config), revision=COMMIT), hidden_size=hidden_size)


def lora(rank: int | None = None, **fields: Any) -> dict[str, Any]:
    adapter = {"name": "sql", "source": {"huggingFace": {"repo": "acme/sql"}}}
    return {"adapters": [adapter | ({"rank": rank} if rank else {})], **fields}


async def applied(answer: AdapterAnswer, spec: dict[str, Any] | None = None) -> Cluster:
    cluster = Cluster({**MI300X, "gpusPerNode": 2})
    cluster.hub.adapter = answer
    cluster.apply("llama", spec_of(lora=spec or lora()))
    await cluster.settle()
    return cluster


def arguments(cluster: Cluster) -> list[str]:
    template = cluster.deployment("llama-mi300x")["spec"]["template"]
    return list(template["spec"]["containers"][0]["args"])


async def test_the_rank_of_the_buffers_follows_from_the_file() -> None:
    assert "--max-lora-rank=32" in arguments(await applied(file(24)))


async def test_a_rank_above_that_of_the_file_holds_a_later_version_too() -> None:
    assert "--max-lora-rank=64" in arguments(await applied(file(24), lora(64)))


def targets(cluster: Cluster) -> list[str]:
    given = arguments(cluster)
    if "--lora-target-modules" not in given:
        return []
    values = given[given.index("--lora-target-modules") + 1 :]
    return list(takewhile(lambda value: not value.startswith("--"), values))


@pytest.mark.parametrize(
    ("modules", "want"),
    [
        (["q_proj", "v_proj"], ["qkv_proj"]),
        (["model.layers.0.self_attn.o_proj", "up_proj"], ["gate_up_proj", "o_proj"]),
        ("all-linear", []),
        (["q_proj", "another_layer"], []),
    ],
)
async def test_buffers_are_only_in_the_layers_that_the_files_name(
    modules: Sequence[str] | str, want: list[str]
) -> None:
    cluster = await applied(file(modules=modules))
    assert targets(cluster) == want


@pytest.mark.parametrize(
    ("engine", "spec", "want"),
    [
        ({}, lora(24, targetModules=["o_proj"]), ["o_proj"]),
        ({"vllm": {"version": "v0.22.0"}}, lora(24), []),
    ],
    ids=["given", "an older vLLM"],
)
async def test_layers_that_the_user_names_and_releases_without_the_setting_stay(
    engine: dict[str, Any], spec: dict[str, Any], want: list[str]
) -> None:
    cluster = Cluster(MI300X)
    cluster.hub.adapter = file()
    cluster.apply("llama", spec_of(lora=spec, engine=engine))
    await cluster.settle()
    assert targets(cluster) == want


async def test_a_volume_with_an_adapter_of_unknown_layers_has_buffers_in_all_layers() -> None:
    cluster = Cluster(MI300X)
    cluster.hub.adapter = file()
    volume = {"persistentVolumeClaim": {"claimName": "adapters"}}
    spec = lora(24)
    spec["adapters"].append({"name": "legal", "source": volume, "rank": 16})
    cluster.apply("llama", spec_of(lora=spec))
    await cluster.settle()
    assert "--enable-lora" in arguments(cluster)
    assert targets(cluster) == []


@pytest.mark.parametrize(
    ("answer", "spec", "want"),
    [
        (file(24), lora(16), "spec.lora.adapters[0].rank: 16 is below rank 24 of adapter sql"),
        (file(24), lora(maxRank=16), "spec.lora.maxRank: 16 is below rank 24 of adapter sql"),
        (file(1024), lora(), "spec.lora.adapters[0].source: adapter sql has rank 1024"),
        (file(8, 999), lora(), "trained on acme/base of hidden size 999"),
        (DORA, lora(16), "spec.lora.adapters[0].source.huggingFace: adapter sql: use_dora"),
        (DOWN, lora(), "spec.lora.adapters[0].source.huggingFace: adapter sql: the Hub"),
        (UNSEEN, lora(), "not seen; set spec.lora.adapters[0].source.huggingFace.token"),
    ],
)
async def test_what_contradicts_or_is_unknown_is_refused_with_the_field(
    answer: AdapterAnswer, spec: dict[str, Any], want: str
) -> None:
    cluster = await applied(answer, spec)
    assert cluster.conditions()["Accepted"][0] == "False"
    assert want in cluster.message("Accepted")


@pytest.mark.parametrize(("version", "want"), [("v0.31.0", "False"), ("v0.32.0", "True")])
async def test_a_release_that_would_scale_single_layers_wrongly_is_refused(
    version: str, want: str
) -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 2})
    cluster.hub.adapter = replace(file(24), has_patterns=True)
    cluster.apply("llama", spec_of(lora=lora(), engine={"vllm": {"version": version}}))
    await cluster.settle()
    assert cluster.conditions()["Accepted"][0] == want
    assert (f"which vLLM {version} ignores" in cluster.message("Accepted")) == (want == "False")


@pytest.mark.parametrize("answer", [DOWN, DENIED, UNSEEN])
async def test_a_given_rank_needs_no_hub(answer: ModelUnavailable) -> None:
    cluster = await applied(answer, lora(24))
    assert cluster.conditions()["Accepted"] == ("True", "ModelNotConfirmed")
    assert answer.message.replace("[]", "[0]") in cluster.message("Accepted")
    assert "--max-lora-rank=32" in arguments(cluster)


@pytest.mark.parametrize("answer", [PENDING, DOWN, DENIED], ids=["pending", "down", "denied"])
async def test_after_a_restart_no_hub_is_needed_to_scale(answer: AdapterAnswer) -> None:
    cluster = await applied(file(24))
    assert cluster.conditions() == SETTLED
    annotations = cluster.api.object(SERVICES, NAMESPACE, "llama")["metadata"]["annotations"]
    assert ANNOTATION_ADAPTER_FACTS in annotations
    before, writes = arguments(cluster), write_count(cluster.api)
    cluster.hub.adapter = answer
    cluster.start_operator()
    await cluster.settle()
    assert write_count(cluster.api) == writes
    cluster.apply("llama", spec_of(lora=lora(), replicas=2))
    await cluster.settle()
    assert len(cluster.pods()) == 2
    assert arguments(cluster) == before


async def test_a_branch_that_moves_to_another_rank_restarts_nothing() -> None:
    cluster = await applied(file(24))
    before, pods = arguments(cluster), {pod["metadata"]["uid"] for pod in cluster.pods()}
    cluster.hub.adapter = file(64)
    await cluster.resync()
    await cluster.settle()
    assert arguments(cluster) == before
    assert {pod["metadata"]["uid"] for pod in cluster.pods()} == pods


def on_volume(facts: bool = True, **fields: Any) -> dict[str, Any]:
    """An adapter on a claim, with a ConfigMap that describes it."""
    described = {"facts": {"configMap": {"name": "legal"}}} if facts else {}
    volume = {"claimName": "adapters", "path": "legal/v1", **described}
    adapter = {"name": "legal", "source": {"persistentVolumeClaim": volume}}
    return {"adapters": [adapter | fields]}


async def applied_with(data: dict[str, str] | None, spec: dict[str, Any]) -> Cluster:
    cluster = Cluster(MI300X)
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, volume_claim("adapters", bound=True))
    if data is not None:
        metadata = {"name": "legal", "namespace": NAMESPACE}
        cluster.api.put(CONFIG_MAPS, {"metadata": metadata, "data": data})
    cluster.apply("llama", spec_of(lora=spec))
    await cluster.settle()
    return cluster


def described(**config: Any) -> dict[str, str]:
    return {
        "adapter_config.json": json.dumps(
            {"r": 24, "lora_alpha": 48, "target_modules": ["q_proj"], **config}
        )
    }


async def test_rank_and_layers_follow_from_the_facts_of_a_volume() -> None:
    cluster = await applied_with(described(), on_volume())
    assert cluster.conditions()["Accepted"] == ("True", "Valid")
    assert "--max-lora-rank=32" in arguments(cluster)
    assert targets(cluster) == ["qkv_proj"]


@pytest.mark.parametrize("later", [False, True], ids=["same operator", "later operator"])
async def test_facts_that_are_added_restart_nothing_where_rank_and_layers_are_given(
    take_over: Callable[[Cluster], None], later: bool
) -> None:
    given: dict[str, Any] = {"targetModules": ["qkv_proj"]}
    cluster = await applied_with(described(), on_volume(facts=False, rank=24) | given)
    before = cluster.deployment("llama-mi300x")["spec"]["template"]
    pods = {pod["metadata"]["uid"] for pod in cluster.pods()}
    if later:
        take_over(cluster)
    cluster.apply("llama", spec_of(lora=on_volume(rank=24) | given))
    await cluster.settle()
    assert {pod["metadata"]["uid"] for pod in cluster.pods()} == pods
    assert cluster.deployment("llama-mi300x")["spec"]["template"] == before
    assert cluster.conditions() == SETTLED


async def test_facts_that_are_added_give_the_layers_that_the_spec_does_not() -> None:
    cluster = await applied_with(described(), on_volume(facts=False, rank=24))
    assert targets(cluster) == []
    cluster.apply("llama", spec_of(lora=on_volume(rank=24)))
    await cluster.settle()
    assert targets(cluster) == ["qkv_proj"]


async def test_facts_that_change_restart_nothing() -> None:
    cluster = await applied_with(described(), on_volume())
    before = arguments(cluster)
    metadata = {"name": "legal", "namespace": NAMESPACE}
    cluster.api.put(CONFIG_MAPS, {"metadata": metadata, "data": described(r=128)})
    await cluster.resync()
    assert arguments(cluster) == before
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize(
    ("data", "spec", "want"),
    [
        (
            None,
            on_volume(),
            "spec.lora.adapters[0].source.persistentVolumeClaim.facts: adapter legal: ConfigMap"
            f" {NAMESPACE}/legal not found; create it with key adapter_config.json",
        ),
        ({}, on_volume(), "ConfigMap legal has no key adapter_config.json"),
        (described(use_dora=True), on_volume(), "use_dora is set"),
        (described(), on_volume(rank=16), "adapters[0].rank: 16 is below rank 24 of adapter legal"),
        (
            None,
            on_volume(facts=False),
            "spec.lora.adapters[0].rank: the rank of adapter legal is unknown; set it, or"
            " source.persistentVolumeClaim.facts (`tonnage inspect --pvc adapters --path legal/v1`",
        ),
    ],
    ids=["no ConfigMap", "no key", "refused by vLLM", "rank too low", "no facts"],
)
async def test_an_adapter_on_a_volume_is_refused_with_the_field(
    data: dict[str, str] | None, spec: dict[str, Any], want: str
) -> None:
    cluster = await applied_with(data, spec)
    assert cluster.conditions()["Accepted"][0] == "False"
    assert want in cluster.message("Accepted")
    assert cluster.deployments() == []


async def test_an_adapter_on_a_volume_with_a_rank_needs_no_facts() -> None:
    cluster = await applied_with(None, on_volume(facts=False, rank=24))
    assert "--max-lora-rank=32" in arguments(cluster)
    assert targets(cluster) == []
