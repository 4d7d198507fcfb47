"""Resource requests and limits of a replica."""

from typing import Any

import pytest

from tests.golden.render.inputs import (
    GIB,
    container_of,
    make_checkpoint,
    make_deployment,
    make_option,
    make_spec,
    pod_of,
)


def resources_of(option: Any = None, user: dict[str, Any] | None = None) -> dict[str, Any]:
    spec = make_spec(template={"spec": {"resources": user}}) if user else make_spec()
    resources = container_of(make_deployment(spec, option))["resources"]
    assert isinstance(resources, dict)
    return resources


@pytest.mark.parametrize(
    ("option", "want"),
    [
        pytest.param(make_option(), {"amd.com/gpu": "1"}, id="TP 1"),
        pytest.param(make_option("h100-sxm-80gb", tensor=4), {"nvidia.com/gpu": "4"}, id="TP 4"),
        pytest.param(make_option(tensor=4, pipeline=2), {"amd.com/gpu": "8"}, id="TP 4 x PP 2"),
    ],
)
def test_gpus_are_requested_and_limited_alike(option: Any, want: dict[str, str]) -> None:
    resources = resources_of(option)
    assert resources["limits"] == want
    assert resources["requests"].items() >= want.items()


@pytest.mark.parametrize(
    ("tensor", "weights_gib", "want"),
    [
        pytest.param(1, 15, {"cpu": "3", "memory": "11Gi"}, id="8B on one GPU"),
        pytest.param(1, 131, {"cpu": "3", "memory": "17Gi"}, id="70B on one GPU"),
        pytest.param(8, 378, {"cpu": "10", "memory": "50Gi"}, id="405B in FP8 on eight"),
    ],
)
def test_cpu_and_memory_follow_from_gpus_and_weights(
    tensor: int, weights_gib: int, want: dict[str, str]
) -> None:
    deployment = make_deployment(
        option=make_option(tensor=tensor), checkpoint=make_checkpoint(weights_gib * GIB)
    )
    requests = container_of(deployment)["resources"]["requests"]
    assert {name: requests[name] for name in ("cpu", "memory")} == want


@pytest.mark.parametrize(
    ("user", "want_requests", "want_limits"),
    [
        pytest.param(
            {"requests": {"memory": "1.5Gi"}},
            {"cpu": "3", "memory": "1536Mi", "ephemeral-storage": "140Gi", "amd.com/gpu": "1"},
            {"amd.com/gpu": "1"},
            id="a request replaces the computed one",
        ),
        pytest.param(
            {"limits": {"memory": "2048Mi"}},
            {"cpu": "3", "ephemeral-storage": "140Gi", "amd.com/gpu": "1"},
            {"memory": "2Gi", "amd.com/gpu": "1"},
            id="a limit replaces the computed request",
        ),
    ],
)
def test_the_users_requests_and_limits_override_the_formula(
    user: dict[str, Any], want_requests: dict[str, str], want_limits: dict[str, str]
) -> None:
    assert resources_of(user=user) == {"requests": want_requests, "limits": want_limits}


def test_weights_of_unknown_size_come_from_the_memory_fit() -> None:
    option = make_option(tensor=4)
    unknown, known = (
        make_deployment(option=option, checkpoint=checkpoint)
        for checkpoint in (make_checkpoint(None), make_checkpoint())
    )
    cache = pod_of(known)["volumes"][0]
    del cache["emptyDir"]["sizeLimit"]  # which only a size that is certain gives
    assert unknown == known


def test_a_few_more_bytes_of_weights_roll_no_pods() -> None:
    template, larger = (
        make_deployment(checkpoint=make_checkpoint(size))["spec"]["template"]
        for size in (141_107_412_992, 141_107_999_999)
    )
    assert template == larger


@pytest.mark.parametrize(
    ("option", "want"),
    [
        (make_option(tensor=1), "8Gi"),
        (make_option(tensor=8), "16Gi"),
        (make_option("h100-sxm-80gb", tensor=1), "2Gi"),
        (make_option("h100-sxm-80gb", tensor=8), "16Gi"),
    ],
    ids=["AMD 1", "AMD 8", "NVIDIA 1", "NVIDIA 8"],
)
def test_shared_memory_grows_with_the_gpus(option: Any, want: str) -> None:
    volumes = pod_of(make_deployment(option=option))["volumes"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": want}} in volumes
