"""The names of images on mirrors."""

import pytest

from tests.golden.render.inputs import container_of, make_deployment, make_option, make_spec
from tonnage.engines.image_mirrors import parse_mirrors, use_mirror
from tonnage.engines.inputs import RenderSettings

VLLM = {"vllm": "registry.example.com/vllm"}


@pytest.mark.parametrize(
    ("image", "mirrors", "want"),
    [
        ("vllm/vllm-openai:v0.32.0", {}, "vllm/vllm-openai:v0.32.0"),
        ("vllm/vllm-openai:v0.32.0", VLLM, "registry.example.com/vllm/vllm-openai:v0.32.0"),
        ("vllm/x@sha256:0", VLLM, "registry.example.com/vllm/x@sha256:0"),
        ("vllm-fork/x:1", VLLM, "vllm-fork/x:1"),
        ("registry/vllm/x:1", VLLM, "registry/vllm/x:1"),
        ("registry:5000/x:1", {"registry:5000": "m.example.com"}, "m.example.com/x:1"),
        ("vllm/x:1", {**VLLM, "vllm/x": "m.example.com/y"}, "m.example.com/y:1"),
    ],
)
def test_the_longest_prefix_is_replaced(image: str, mirrors: dict[str, str], want: str) -> None:
    assert use_mirror(image, mirrors) == want


def test_the_mirrors_of_a_pool_come_before_those_of_the_operator() -> None:
    pool = {"vllm": "east.example.com/vllm"}
    assert use_mirror("vllm/x:1", pool, VLLM) == "east.example.com/vllm/x:1"
    assert use_mirror("vllm/x:1", {"rocm": "east.example.com"}, VLLM).startswith("registry")


MIRRORED = RenderSettings(registry_mirrors=(*VLLM.items(), ("me", "registry.example.com/me")))


@pytest.mark.parametrize(
    ("vllm", "images", "want"),
    [
        ({"version": "v0.32.0"}, {}, "registry.example.com/vllm/vllm-openai-rocm:v0.32.0"),
        ({"image": "me/x:2"}, {}, "registry.example.com/me/x:2"),
        ({}, {"vllm": "own.example.com/rocm:1"}, "own.example.com/rocm:1"),
        (
            {"version": "v0.32.0"},
            {"mirrors": {"vllm": "east.example.com"}},
            "east.example.com/vllm-openai-rocm:v0.32.0",
        ),
    ],
)
def test_pods_have_the_image_of_the_mirror(
    vllm: dict[str, str], images: dict[str, object], want: str
) -> None:
    """The command is that of the image by its own name: a mirror has the same image."""
    declared = {"nodeSelector": {"a": "b"}, "images": images}
    spec, option = make_spec(engine={"vllm": vllm}), make_option("mi300x", declared=declared)
    container = container_of(make_deployment(spec, option, settings=MIRRORED))
    assert container["image"] == want
    plain = make_option("mi300x", declared={**declared, "images": {**images, "mirrors": {}}})
    assert container.get("command") == container_of(make_deployment(spec, plain)).get("command")


def test_mirrors_are_pairs() -> None:
    assert parse_mirrors("") == ()
    assert parse_mirrors("vllm=a.example.com/hub, rocm=b.example.com:5000") == (
        ("vllm", "a.example.com/hub"),
        ("rocm", "b.example.com:5000"),
    )


@pytest.mark.parametrize("text", ["vllm", "vllm=", "=a", "vllm=https://a b", "a/=b"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not PREFIX=MIRROR"):
        parse_mirrors(text)
