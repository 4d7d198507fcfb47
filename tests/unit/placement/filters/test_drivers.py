"""SGLang has images for CUDA 13 only; vLLM has one for each driver that is usable."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import nvidia_node
from tests.support.fleets.placing import CATALOG, LLAMA_8B, OWNER, pools_of, spec_of
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.placement.decide import decide
from tonnage.placement.model import Candidate, Request, Verdict

(POOL,) = pools_of([nvidia_node("a")])
DECLARED = AcceleratorPoolSpec.model_validate(
    {"nodeSelector": {"team": "a"}, "images": {"sglang": "mirror/sglang:cu128"}}
)


def judge(engine: dict[str, Any], **pool: Any) -> Candidate:
    (candidate,) = decide(
        Request(OWNER, spec_of(engine=engine), LLAMA_8B), [replace(POOL, **pool)], CATALOG
    ).candidates
    return candidate


def test_drivers_that_run_no_image_are_named_with_the_way_out() -> None:
    candidate = judge({"sglang": {}}, cuda=(12, 8))
    assert candidate.verdict is Verdict.REJECTED
    assert candidate.reason == "Unsupported"
    assert candidate.message.startswith(
        "its drivers support CUDA 12.8, the images of the engine need 13.0: install newer"
        " drivers, or set spec.engine.sglang.image"
    )


@pytest.mark.parametrize(
    ("engine", "pool"),
    [
        pytest.param({"sglang": {}}, {"cuda": (13, 0)}, id="new enough"),
        pytest.param({"sglang": {}}, {"cuda": None}, id="unknown"),
        pytest.param({"sglang": {"image": "mine:1"}}, {"cuda": (12, 8)}, id="the user's image"),
        pytest.param({"sglang": {}}, {"cuda": (12, 8), "declared": DECLARED}, id="the pool's"),
        pytest.param({}, {"cuda": (12, 8)}, id="vLLM"),
    ],
)
def test_other_pools_are_not_rejected(engine: dict[str, Any], pool: dict[str, Any]) -> None:
    assert judge(engine, **pool).verdict is Verdict.CHOSEN
