"""The digest of a placement's inputs on the Deployment: which digests keep the placement."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.fleets.placing import spec_of
from tests.support.specs.observed import observed
from tonnage.api.inference import Engine, InferenceDeploymentSpec, VllmEngine
from tonnage.fit.model import Parallelism
from tonnage.reconcile.observation.children import Child, ChildDeployment
from tonnage.reconcile.observation.digests import (
    digests_of_choice,
    placement_digest,
    pod_spec_digest,
)
from tonnage.reconcile.observation.serving import serving_deployment

SETTINGS = {
    "version": "v0.27.1",
    "gpuMemoryUtilization": 0.9,
    "maxNumSeqs": 64,
    "maxNumBatchedTokens": 4096,
    "enforceEager": True,
}

PINNED = [
    pytest.param({}, "2c6d6034535eca93", "2a3e90692cef3b35", id="all by default"),
    pytest.param(
        {"engine": {"vllm": SETTINGS}}, "a5a70fd283cefb20", "7d50d554d42626e0", id="every setting"
    ),
    pytest.param(
        {"engine": {"vllm": {"maxNumSeqs": 64}}},
        "674a3a5148bb3996",
        "de31ceeccf1a34f1",
        id="one setting",
    ),
    pytest.param(
        {"placement": {"policy": "FewestGPUs", "accelerators": ["mi300x"]}},
        "424c7896a06ac745",
        "476f2b1eba542a12",
        id="a placement policy",
    ),
]


class LaterVllm(VllmEngine):
    """The engine of a later version, with one setting more."""

    kv_cache_bytes: int | None = None


def deployment(placement_digest: str) -> ChildDeployment:
    body = {"metadata": {"name": "llama-mi300x"}, "spec": {}}
    return ChildDeployment(
        child=Child("llama-mi300x", "u1", "1", body),
        created=datetime(2026, 1, 1, tzinfo=UTC),
        pool="amd-mi300x",
        parallelism=Parallelism(1, 1),
        placement_digest=placement_digest,
        template="",
        wanted=1,
        existing=1,
        ready=1,
        settled=True,
    )


@pytest.mark.parametrize(("fields", "listed", "mapped"), PINNED)
def test_digests_stay_what_they_are_from_version_to_version(
    fields: dict[str, Any], listed: str, mapped: str
) -> None:
    assert tuple(digests_of_choice(spec_of(**fields))) == (listed, mapped)


@pytest.mark.parametrize(("fields", "listed", "mapped"), PINNED)
def test_version_0_1_0_reads_what_is_written(
    fields: dict[str, Any], listed: str, mapped: str
) -> None:
    assert placement_digest(spec_of(**fields)) == listed


@pytest.mark.parametrize(("fields", "listed", "mapped"), PINNED)
def test_replicas_stay_whichever_digest_their_deployment_has(
    fields: dict[str, Any], listed: str, mapped: str
) -> None:
    for digest in (listed, mapped):
        live = deployment(digest)
        assert serving_deployment(observed(spec_of(**fields), deployments=(live,))) is live
    for digest in ("", "0123456789abcdef"):
        others = (deployment(digest),)
        assert serving_deployment(observed(spec_of(**fields), deployments=others)) is None


def test_a_setting_of_a_later_version_moves_no_object_that_does_not_set_it() -> None:
    spec = spec_of(engine={"vllm": SETTINGS})
    unset = spec.model_copy(update={"engine": Engine(vllm=LaterVllm.model_validate(SETTINGS))})
    given = LaterVllm.model_validate({**SETTINGS, "kvCacheBytes": 2**30})
    chosen = spec.model_copy(update={"engine": Engine(vllm=given)})
    assert tuple(digests_of_choice(unset)) == tuple(digests_of_choice(spec))
    (only,) = digests_of_choice(chosen)
    assert only not in digests_of_choice(spec)
    assert placement_digest(chosen) == only


@pytest.mark.parametrize(
    "setting",
    [
        {"image": "registry/vllm:1"},
        {"extraArgs": ["--seed=1"]},
        {"env": [{"name": "A", "value": "b"}]},
    ],
)
def test_settings_that_do_not_change_memory_are_in_no_digest(setting: dict[str, Any]) -> None:
    with_it = spec_of(engine={"vllm": setting})
    assert tuple(digests_of_choice(with_it)) == tuple(digests_of_choice(spec_of()))


def test_a_secondary_placement_may_have_another_digest_than_the_first() -> None:
    spec = spec_of()
    first, second = (deployment(digest) for digest in digests_of_choice(spec))
    second = replace(second, secondary=True)
    assert serving_deployment(observed(spec, deployments=(second, first))) is first


def test_the_buffers_for_adapters_are_in_the_digest_and_which_adapters_they_are_is_not() -> None:
    def of(**lora: Any) -> str:
        return placement_digest(spec_of(lora=lora))

    source = {"huggingFace": {"repo": "acme/sql"}}
    adapters = [{"name": "a", "source": source, "rank": 16}]
    renamed = [{"name": "b", "source": source, "rank": 16}]
    assert placement_digest(spec_of()) != of() != of(maxLoras=2) != of(maxLoras=2, maxRank=64)
    assert of(targetModules=["o_proj", "qkv_proj"]) == of(targetModules=["qkv_proj", "o_proj"])
    assert of(adapters=adapters) == of(adapters=renamed)


def test_other_adapters_are_another_choice_where_their_files_decide_the_buffers() -> None:
    def of(repo: str, rank: int | None, **lora: Any) -> str:
        adapter = {"name": "a", "source": {"huggingFace": {"repo": repo}}}
        adapters = [adapter | ({"rank": rank} if rank else {})]
        return placement_digest(spec_of(lora={"adapters": adapters, **lora}))

    layers = {"targetModules": ["qkv_proj"]}
    assert of("acme/a", 16) != of("acme/b", 16)
    assert of("acme/a", None, **layers) != of("acme/b", None, **layers)
    assert of("acme/a", 16, **layers) == of("acme/b", 16, **layers)
    assert of("acme/a", None, maxRank=64, **layers) == of("acme/b", None, maxRank=64, **layers)


def test_with_live_updates_adapters_are_not_rendered_and_their_claims_are() -> None:
    def of(*claims: str, updates: str = "Live") -> InferenceDeploymentSpec:
        adapters = [
            {"name": f"a{n}", "source": {"persistentVolumeClaim": {"claimName": claim}}}
            for n, claim in enumerate(claims)
        ]
        sizes = {"maxRank": 16, "maxCpuLoras": 8}
        return spec_of(lora={"updates": updates, "adapters": adapters, **sizes})

    assert pod_spec_digest(of("x", "y")) == pod_spec_digest(of("y", "x", "x"))
    assert pod_spec_digest(of("x")) != pod_spec_digest(of("x", "y"))
    assert pod_spec_digest(of("x")) != pod_spec_digest(of("x", updates="Rolling"))
    assert placement_digest(of("x")) == placement_digest(of("x", "y"))


def test_a_default_of_adapters_changes_no_digest() -> None:
    lora = {"maxRank": 16, "maxCpuLoras": 8}
    assert pod_spec_digest(spec_of(lora=lora)) == pod_spec_digest(
        spec_of(lora={**lora, "updates": "Rolling"})
    )
