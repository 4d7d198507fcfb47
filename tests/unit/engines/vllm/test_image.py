"""The image of a pod, and whether it needs a command."""

from dataclasses import replace
from typing import Any

import pytest

from tests.golden.render.inputs import container_of, make_deployment, make_option, make_spec
from tonnage.catalog.rules import Settings

SERVE = ["vllm", "serve"]


@pytest.mark.parametrize(
    ("accelerator", "vllm", "pool_image", "want_image", "want_command"),
    [
        pytest.param(
            "mi300x", {"version": "v0.32.0"}, None, "vllm/vllm-openai-rocm:v0.32.0", None, id="AMD"
        ),
        pytest.param(
            "h100-sxm-80gb",
            {"version": "v0.32.0"},
            None,
            "vllm/vllm-openai:v0.32.0",
            None,
            id="NVIDIA",
        ),
        pytest.param(
            "mi300x",
            {"version": "v0.40.0"},
            None,
            "vllm/vllm-openai-rocm:v0.40.0",
            None,
            id="a release newer than the catalogue",
        ),
        pytest.param(
            "h100-sxm-80gb",
            {"version": "v0.12.0"},
            None,
            "vllm/vllm-openai:v0.12.0",
            SERVE,
            id="an old release may have another entrypoint",
        ),
        pytest.param("mi300x", {}, "mirror/rocm:1", "mirror/rocm:1", SERVE, id="the pool's"),
        pytest.param(
            "mi300x",
            {"version": "v0.31.0"},
            "mirror/rocm:1",
            "vllm/vllm-openai-rocm:v0.31.0",
            None,
            id="the user's release",
        ),
        pytest.param(
            "mi300x", {"image": "me/x:2"}, "mirror/rocm:1", "me/x:2", SERVE, id="the user's"
        ),
    ],
)
def test_the_user_overrides_the_pool_and_the_pool_the_vendor(
    accelerator: str,
    vllm: dict[str, Any],
    pool_image: str | None,
    want_image: str,
    want_command: list[str] | None,
) -> None:
    declared = {"nodeSelector": {"a": "b"}, "images": {"vllm": pool_image}} if pool_image else None
    deployment = make_deployment(
        make_spec(engine={"vllm": vllm}), make_option(accelerator, declared=declared)
    )
    container = container_of(deployment)
    assert container["image"] == want_image
    assert container.get("command") == want_command


def test_the_users_image_overrides_that_of_a_compatibility_rule() -> None:
    option = make_option(rules=Settings(image="vllm/vllm-openai-rocm:nightly-1"))
    pinned = container_of(make_deployment(option=option))
    assert (pinned["image"], pinned["command"]) == ("vllm/vllm-openai-rocm:nightly-1", SERVE)
    own = make_spec(engine={"vllm": {"image": "own/vllm:1"}})
    assert container_of(make_deployment(own, option))["image"] == "own/vllm:1"


@pytest.mark.parametrize(
    ("cuda", "want"),
    [
        pytest.param(None, "vllm/vllm-openai:v0.32.0", id="no driver label"),
        pytest.param((13, 0), "vllm/vllm-openai:v0.32.0", id="driver 580"),
        pytest.param((12, 8), "vllm/vllm-openai:v0.32.0-cu129", id="driver 570"),
    ],
)
def test_the_drivers_of_the_pool_choose_the_build(cuda: tuple[int, int] | None, want: str) -> None:
    option = make_option("h100-sxm-80gb")
    option = replace(option, pool=replace(option.pool, cuda=cuda))
    spec = make_spec(engine={"vllm": {"version": "v0.32.0"}})
    assert container_of(make_deployment(spec, option))["image"] == want
