"""Probes, grace periods and deadlines."""

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
from tonnage.api.inference import Rollout
from tonnage.catalog.model import Vendor
from tonnage.engines.lifetime import (
    progress_deadline_seconds,
    startup_seconds,
)
from tonnage.engines.medium import Medium


@pytest.mark.parametrize(
    ("model_gib", "want_at_least", "want_at_most"),
    [
        pytest.param(32, 10 * 60, 20 * 60, id="small models get little more than the floor"),
        pytest.param(160, 30 * 60, 40 * 60, id="70B in BF16"),
        pytest.param(384, 60 * 60, 80 * 60, id="405B in FP8 gets an hour"),
        pytest.param(704, 90 * 60, 150 * 60, id="DeepSeek-V3"),
    ],
)
def test_the_start_timeout_grows_with_the_model(
    model_gib: int, want_at_least: int, want_at_most: int
) -> None:
    assert want_at_least <= startup_seconds(model_gib, Medium.HUB) <= want_at_most


def test_the_start_timeout_has_a_floor() -> None:
    assert startup_seconds(0, Medium.HUB) == 600


@pytest.mark.parametrize(("accelerator", "want"), [("mi300x", 160), ("h100-sxm-80gb", 150)])
def test_the_grace_period_covers_the_pause_the_drain_and_the_release_of_the_gpus(
    accelerator: str, want: int
) -> None:
    deployment = make_deployment(option=make_option(accelerator))
    container = container_of(deployment)
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    (drain,) = (
        int(argument.partition("=")[2])
        for argument in container["args"]
        if argument.startswith("--shutdown-timeout=")
    )
    assert pod_of(deployment)["terminationGracePeriodSeconds"] == want
    assert want >= pause + drain + 15


def test_the_progress_deadline_covers_an_image_a_start_and_the_end_of_an_old_pod() -> None:
    deadline = progress_deadline_seconds(160, Medium.HUB, Vendor.AMD, Rollout())
    assert make_deployment()["spec"]["progressDeadlineSeconds"] == deadline
    assert deadline > startup_seconds(160, Medium.HUB) + 160 + 1200


def test_an_image_is_read_faster_than_a_download_and_needs_time_for_its_pull() -> None:
    on_hub, on_volume, in_image = (
        startup_seconds(160, each) for each in (Medium.HUB, Medium.VOLUME, Medium.IMAGE)
    )
    assert in_image < on_volume == on_hub
    pulled = progress_deadline_seconds(160, Medium.IMAGE, Vendor.AMD, Rollout())
    on_claim = progress_deadline_seconds(160, Medium.VOLUME, Vendor.AMD, Rollout())
    assert pulled - in_image > on_claim - on_volume + 160 * GIB / 250e6


def test_the_probe_and_vllm_wait_as_long_as_the_medium_needs() -> None:
    image = {"image": {"reference": "registry.example.com/models/llama:1"}}
    spec = make_spec(model={"source": {"huggingFace": {"repo": "org/llama"}}, "cache": image})
    container = container_of(make_deployment(spec, checkpoint=make_checkpoint(150 * GIB)))
    seconds = startup_seconds(160, Medium.IMAGE)
    timeout = next(one for one in container["env"] if one["name"] == "VLLM_ENGINE_READY_TIMEOUT_S")
    probe = container["startupProbe"]
    assert int(timeout["value"]) == seconds
    assert seconds < probe["failureThreshold"] * probe["periodSeconds"] <= seconds + 70


def test_probes_ask_for_health_on_the_named_port() -> None:
    container = container_of(make_deployment(checkpoint=make_checkpoint(131 * GIB)))
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
    assert container["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]


def test_the_liveness_probe_fails_after_a_minute() -> None:
    probe = container_of(make_deployment())["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 60


@pytest.mark.parametrize(
    ("deadline", "want"),
    [("45m", 2700), ("1500ms", 2), ("0s", 1), ("999999999h", 2**31 - 1)],
)
def test_the_users_deadline_becomes_whole_seconds(deadline: str, want: int) -> None:
    spec = make_spec(rollout={"progressDeadline": deadline})
    assert make_deployment(spec)["spec"]["progressDeadlineSeconds"] == want
