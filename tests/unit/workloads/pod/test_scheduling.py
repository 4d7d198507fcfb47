"""Node affinity and tolerations of a pod."""

from dataclasses import replace
from typing import Any

import pytest

from tests.golden.render.inputs import make_deployment, make_option, make_spec, pod_of
from tonnage.workloads.pod.scheduling import follow_nodes

EVERY_GPU_NODE = [
    {"key": "amd.com/gpu", "operator": "Exists"},
    {"key": "nvidia.com/gpu", "operator": "Exists"},
    {"key": "sku", "operator": "Equal", "value": "gpu"},
]


def required_labels(option: Any) -> dict[str, list[str]]:
    affinity = pod_of(make_deployment(option=option))["affinity"]["nodeAffinity"]
    required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert all(expression["operator"] == "In" for expression in term["matchExpressions"])
    return {each["key"]: each["values"] for each in term["matchExpressions"]}


@pytest.mark.parametrize(
    ("option", "want"),
    [
        pytest.param(
            make_option(node_selector={"team": ("b", "a")}),
            {"team": ["a", "b"], "kubernetes.io/os": ["linux"], "kubernetes.io/arch": ["amd64"]},
            id="the pool's labels, in a fixed order",
        ),
        pytest.param(
            make_option("h100-sxm-80gb", node_selector={"a": ("b",)}),
            {"a": ["b"], "kubernetes.io/os": ["linux"], "kubernetes.io/arch": ["amd64", "arm64"]},
            id="NVIDIA's images are built for both",
        ),
        pytest.param(
            make_option("gb200-192gb", node_selector={"a": ("b",)}),
            {"a": ["b"], "kubernetes.io/os": ["linux"], "kubernetes.io/arch": ["arm64"]},
            id="an accelerator with an ARM processor",
        ),
        pytest.param(
            make_option(node_selector={"kubernetes.io/arch": ("arm64",)}),
            {"kubernetes.io/os": ["linux"], "kubernetes.io/arch": ["arm64"]},
            id="the pool selects the processor",
        ),
    ],
)
def test_the_affinity_requires_labels(option: Any, want: dict[str, list[str]]) -> None:
    assert required_labels(option) == want


BRANCH = "nvidia.com/cuda.driver-version.major"


@pytest.mark.parametrize(
    ("cuda", "version", "oldest"),
    [
        pytest.param((13, 0), None, "579", id="a build for CUDA 13"),
        pytest.param((12, 4), None, "534", id="the build for older drivers"),
        pytest.param((13, 0), "v0.18.0", "534", id="a release with one build"),
    ],
)
def test_the_affinity_excludes_drivers_that_are_too_old_for_the_image(
    cuda: tuple[int, int], version: str | None, oldest: str
) -> None:
    option = make_option("h100-sxm-80gb", node_selector={"a": ("b",)})
    option = replace(option, pool=replace(option.pool, cuda=cuda))
    spec = make_spec(engine={"vllm": {"version": version}} if version else {})
    affinity = pod_of(make_deployment(spec, option))["affinity"]["nodeAffinity"]
    newer, unknown = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    *labels, driver = newer["matchExpressions"]
    assert driver == {"key": BRANCH, "operator": "Gt", "values": [oldest]}
    assert unknown["matchExpressions"] == [*labels, {"key": BRANCH, "operator": "DoesNotExist"}]


def affinity_with(cuda: Any, labels: dict[str, tuple[str, ...]], **required: Any) -> Any:
    option = make_option("h100-sxm-80gb", node_selector=labels)
    option = replace(option, pool=replace(option.pool, cuda=cuda))
    affinity = {"nodeAffinity": {REQUIRED: required}} if required else {}
    spec = make_spec(podTemplate={"spec": {"affinity": affinity}})
    return pod_of(make_deployment(spec, option))["affinity"]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NEWER, OLDER = (13, 0), (12, 4)
ZONES = [
    {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"
]


def test_an_image_that_stays_keeps_its_drivers_where_the_labels_of_the_pool_change() -> None:
    kept = affinity_with(NEWER, {"pool": ("a",)})
    assert follow_nodes(kept, affinity_with(OLDER, {"pool": ("a",)})) is kept
    assert follow_nodes(kept, affinity_with(None, {"pool": ("a",)})) is kept
    wanted = affinity_with(NEWER, {"pool": ("b",)})
    assert follow_nodes(kept, affinity_with(OLDER, {"pool": ("b",)})) == wanted
    assert follow_nodes(kept, affinity_with(None, {"pool": ("b",)})) == wanted


def test_drivers_and_alternatives_of_a_user_are_combined() -> None:
    kept = affinity_with(NEWER, {"pool": ("a",)}, nodeSelectorTerms=ZONES)
    assert len(kept["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]) == 4
    older = affinity_with(OLDER, {"pool": ("a",)}, nodeSelectorTerms=ZONES)
    assert follow_nodes(kept, older) is kept
    moved = follow_nodes(kept, affinity_with(OLDER, {"pool": ("b",)}, nodeSelectorTerms=ZONES))
    terms = moved["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert len(terms) == 4
    for term in terms:
        by_key = {each["key"]: each for each in term["matchExpressions"]}
        assert by_key["pool"]["values"] == ["b"]
        assert by_key["zone"]["values"] in (["a"], ["b"])
        assert by_key[BRANCH].get("values", ["579"]) == ["579"]


@pytest.mark.parametrize("odd", [{}, {"nodeAffinity": None}, {"nodeAffinity": {REQUIRED: {}}}])
def test_an_affinity_that_someone_has_edited_is_followed(odd: Any) -> None:
    now = affinity_with(None, {"pool": ("a",)})
    assert follow_nodes(odd, now) == now


def test_the_image_of_a_user_excludes_no_driver() -> None:
    option = make_option("h100-sxm-80gb", node_selector={"a": ("b",)})
    option = replace(option, pool=replace(option.pool, cuda=(13, 0)))
    spec = make_spec(engine={"vllm": {"image": "registry.example/vllm:1"}})
    affinity = pod_of(make_deployment(spec, option))["affinity"]["nodeAffinity"]
    assert len(affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]) == 1


def test_the_affinity_excludes_labels() -> None:
    option = make_option(node_selector={"a": ("b",)})
    exclusion = {"team": ("chat",), "amd.com/gpu.device-id": ()}
    option = replace(option, pool=replace(option.pool, node_exclusion=exclusion))
    affinity = pod_of(make_deployment(option=option))["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"][-2:] == [
        {"key": "team", "operator": "NotIn", "values": ["chat"]},
        {"key": "amd.com/gpu.device-id", "operator": "DoesNotExist"},
    ]


@pytest.mark.parametrize(
    ("declared", "user", "want_further"),
    [
        pytest.param(None, [], [], id="only the conventional ones"),
        pytest.param(
            {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "team", "value": "x"}]},
            [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
            [
                {"key": "team", "value": "x"},
                {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
            ],
            id="the pool's, then the user's",
        ),
        pytest.param(
            {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "spot"}]},
            [{"key": "spot"}, {"key": "amd.com/gpu", "operator": "Exists"}],
            [{"key": "spot"}],
            id="each once",
        ),
    ],
)
def test_tolerations(
    declared: dict[str, Any] | None, user: list[dict[str, Any]], want_further: list[dict[str, Any]]
) -> None:
    spec = make_spec(template={"spec": {"tolerations": user}})
    tolerations = pod_of(make_deployment(spec, make_option(declared=declared)))["tolerations"]
    assert tolerations == [*EVERY_GPU_NODE, *want_further]


def test_taints_of_unhealthy_nodes_are_never_tolerated() -> None:
    tolerated = {each["key"] for each in pod_of(make_deployment())["tolerations"]}
    assert not tolerated & {"amd-gpu-unhealthy", "amd-dcm"}
