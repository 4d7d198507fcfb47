"""A node without enough disk for the weights of a model is no candidate, and says so."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import nvidia_node
from tests.support.fleets.placing import CATALOG, LLAMA_8B, OWNER, pools_of, spec_of
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.fleet.model import Pool
from tonnage.placement.cache import PlacementCache
from tonnage.placement.decide import decide
from tonnage.placement.model import Candidate, Request, Verdict

(POOL,) = pools_of([nvidia_node("a")])
CHECKPOINT = replace(LLAMA_8B, weights_bytes=16 * 2**30)
HUB = {"source": {"huggingFace": {"repo": "acme/llama"}}}
ON_NODE = {"model": HUB | {"cache": {"nodeDisk": {}}}}


def declare(weights: dict[str, Any] | None) -> Pool:
    raw = {"nodeSelector": {"team": "a"}, **({"weights": weights} if weights else {})}
    return replace(POOL, declared=AcceleratorPoolSpec.model_validate(raw))


def judge(pool: Pool, cache: PlacementCache | None = None, **spec: Any) -> Candidate:
    request = Request(OWNER, spec_of(**spec), CHECKPOINT)
    (candidate,) = decide(request, [pool], CATALOG, cache).candidates
    return candidate


def disk(capacity: str) -> Pool:
    return declare({"nodeDisk": {"capacity": capacity}})


@pytest.mark.parametrize("capacity", ["16Gi", "2Ti", "17179869184", "17.2G"])
def test_a_pool_with_enough_disk_is_chosen(capacity: str) -> None:
    assert judge(disk(capacity), **ON_NODE).verdict is Verdict.CHOSEN


@pytest.mark.parametrize("capacity", ["15Gi", "17G", "0", "17179869183.5"])
def test_a_pool_with_too_little_disk_is_rejected_with_figures(capacity: str) -> None:
    candidate = judge(disk(capacity), **ON_NODE)
    assert (candidate.verdict, candidate.reason) == (Verdict.REJECTED, "InsufficientResources")
    assert candidate.message.startswith("the model takes 16.0 GiB of disk, and its nodes have")
    assert "raise spec.weights.nodeDisk.capacity" in candidate.message


@pytest.mark.parametrize("weights", [None, {}])
def test_a_pool_that_keeps_no_weights_is_rejected(weights: dict[str, Any] | None) -> None:
    candidate = judge(declare(weights), **ON_NODE)
    assert (candidate.verdict, candidate.reason) == (Verdict.REJECTED, "NoNodeDisk")
    assert "declare spec.weights.nodeDisk" in candidate.message


def test_other_models_need_no_disk_also_after_one_that_does() -> None:
    cache, pool = PlacementCache(), declare(None)
    assert judge(pool, cache, **ON_NODE).verdict is Verdict.REJECTED
    assert judge(pool, cache, model=HUB).verdict is Verdict.CHOSEN
    assert judge(pool, cache, **ON_NODE).verdict is Verdict.REJECTED
