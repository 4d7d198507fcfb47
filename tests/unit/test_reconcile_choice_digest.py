"""What a place was chosen for, as a digest on the Deployment: which digests keep a place."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.observed import observed
from tests.support.placing import spec_of
from tonnage.api.inference import Engine, VllmEngine
from tonnage.fit.model import Parallelism
from tonnage.reconcile.children import Child, ChildDeployment
from tonnage.reconcile.choice import digests_of_choice, placed_for
from tonnage.reconcile.serving import serving_deployment

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
        id="a say in the choice",
    ),
]


class LaterVllm(VllmEngine):
    """The engine of a later version, with one setting more."""

    kv_cache_bytes: int | None = None


def deployment(placed_for: str) -> ChildDeployment:
    body = {"metadata": {"name": "llama-mi300x"}, "spec": {}}
    return ChildDeployment(
        child=Child("llama-mi300x", "u1", "1", body),
        created=datetime(2026, 1, 1, tzinfo=UTC),
        pool="amd-mi300x",
        parallelism=Parallelism(1, 1),
        placed_for=placed_for,
        template="",
        wanted=1,
        existing=1,
        ready=1,
        settled=True,
    )


@pytest.mark.parametrize(("asked", "listed", "mapped"), PINNED)
def test_digests_stay_what_they_are_from_version_to_version(
    asked: dict[str, Any], listed: str, mapped: str
) -> None:
    assert digests_of_choice(spec_of(**asked)) == (listed, mapped)


@pytest.mark.parametrize(("asked", "listed", "mapped"), PINNED)
def test_version_0_1_0_reads_what_is_written(
    asked: dict[str, Any], listed: str, mapped: str
) -> None:
    assert placed_for(spec_of(**asked)) == listed


@pytest.mark.parametrize(("asked", "listed", "mapped"), PINNED)
def test_replicas_stay_whichever_digest_their_deployment_bears(
    asked: dict[str, Any], listed: str, mapped: str
) -> None:
    for digest in (listed, mapped):
        there = deployment(digest)
        assert serving_deployment(observed(spec_of(**asked), deployments=(there,))) is there
    for digest in ("", "0123456789abcdef"):
        others = (deployment(digest),)
        assert serving_deployment(observed(spec_of(**asked), deployments=others)) is None


def test_a_setting_that_comes_with_a_later_version_moves_nobody_who_does_not_set_it() -> None:
    spec = spec_of(engine={"vllm": SETTINGS})
    unset = spec.model_copy(update={"engine": Engine(vllm=LaterVllm.model_validate(SETTINGS))})
    given = LaterVllm.model_validate({**SETTINGS, "kvCacheBytes": 2**30})
    chosen = spec.model_copy(update={"engine": Engine(vllm=given)})
    assert digests_of_choice(unset) == digests_of_choice(spec)
    (only,) = digests_of_choice(chosen)
    assert only not in digests_of_choice(spec)
    assert placed_for(chosen) == only


@pytest.mark.parametrize(
    "setting",
    [
        {"image": "registry/vllm:1"},
        {"extraArgs": ["--seed=1"]},
        {"env": [{"name": "A", "value": "b"}]},
    ],
)
def test_what_memory_does_not_need_is_in_no_digest(setting: dict[str, Any]) -> None:
    with_it = spec_of(engine={"vllm": setting})
    assert digests_of_choice(with_it) == digests_of_choice(spec_of())


def test_a_share_may_bear_another_digest_than_the_first() -> None:
    spec = spec_of()
    first, second = (deployment(digest) for digest in digests_of_choice(spec))
    second = replace(second, beside=True)
    assert serving_deployment(observed(spec, deployments=(second, first))) is first
