"""The rendered Deployment, Service and InferencePool."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.golden.render.inputs import (
    OWNER,
    container_of,
    make_deployment,
    make_option,
    make_spec,
    pod_of,
)
from tonnage.api.gateway import InferencePoolSpec
from tonnage.api.inference import Rollout
from tonnage.api.names import ANNOTATION_PLACED_FOR, ANNOTATION_PLACEMENT
from tonnage.api.names import LABEL_KUEUE_QUEUE as QUEUE
from tonnage.api.parse import parse_model
from tonnage.catalog.model import Vendor
from tonnage.engines.defaults import load_defaults
from tonnage.engines.inputs import SurgeMode
from tonnage.workloads.deployment import render_strategy
from tonnage.workloads.inference_pool import render_inference_pool
from tonnage.workloads.names import (
    deployment_name,
    inference_pool_name,
    service_name,
)
from tonnage.workloads.service import render_service


@pytest.mark.parametrize(
    ("owner", "placement", "want"),
    [
        pytest.param("llama", "mi300x", "llama-mi300x", id="short"),
        pytest.param("a" * 56, "mi300x", "a" * 56 + "-mi300x", id="just fits"),
        pytest.param(
            "a" * 57, "mi300x", "a" * 54 + "-f58a051c", id="one too many is cut and digested"
        ),
        pytest.param("a" * 53 + "-" + "b" * 9, "x", "a" * 53 + "-b5711f15", id="no double dash"),
    ],
)
def test_deployment_name(owner: str, placement: str, want: str) -> None:
    name = deployment_name(owner, placement)
    assert len(name) <= 63
    assert name == want


def test_long_names_with_the_same_start_differ() -> None:
    names = {deployment_name("a" * 60 + end, "h100-sxm-80gb") for end in ("x", "y", "z")}
    assert len(names) == 3


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        (
            SurgeMode.SURGE,
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        ),
        (
            SurgeMode.ONE_BY_ONE,
            {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        ),
        (SurgeMode.ALL_AT_ONCE, {"type": "Recreate"}),
    ],
)
def test_strategy(mode: SurgeMode, want: dict[str, Any]) -> None:
    assert render_strategy(mode, Rollout()) == want
    more = render_strategy(mode, Rollout(max_unavailable=3))
    one_by_one = {"maxSurge": 0, "maxUnavailable": 3}
    assert more.get("rollingUpdate") == (
        one_by_one if mode is SurgeMode.ONE_BY_ONE else want.get("rollingUpdate")
    )
    assert make_deployment(surge=mode)["spec"]["strategy"] == want


POOL = parse_model(
    InferencePoolSpec,
    {"endpointPickerRef": {"name": "picker", "port": {"number": 9002}}},
    "spec.gateway.inferencePool",
)


@pytest.mark.parametrize(
    "child",
    [make_deployment(), render_service(OWNER), render_inference_pool(OWNER, POOL)],
    ids=lambda child: child["kind"],
)
def test_children_belong_to_their_owner(child: dict[str, Any]) -> None:
    metadata = child["metadata"]
    assert metadata["namespace"] == OWNER.namespace
    assert metadata["labels"]["tonnage.dev/inferencedeployment"] == OWNER.name
    assert metadata["labels"]["app.kubernetes.io/managed-by"] == "tonnage"
    (reference,) = metadata["ownerReferences"]
    assert reference["uid"] == OWNER.uid
    assert reference["controller"] is True
    # It would need the right to update the owner's finalizers where admission checks that.
    assert "blockOwnerDeletion" not in reference


def test_selectors_select_the_pods() -> None:
    deployment, service = make_deployment(), render_service(OWNER)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["metadata"]["name"] == service_name(OWNER.name) == OWNER.name
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (8000, "http")


def test_the_inference_pool_selects_the_pods_of_all_placements() -> None:
    pool, service = render_inference_pool(OWNER, POOL), render_service(OWNER)
    container = container_of(make_deployment())
    assert pool["metadata"]["name"] == inference_pool_name(OWNER.name) == OWNER.name
    assert pool["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert pool["spec"]["targetPorts"] == [{"number": container["ports"][0]["containerPort"]}]


@pytest.mark.parametrize(
    ("of_the_object", "of_the_template", "want"),
    [
        (None, None, None),
        ("gold", None, "gold"),
        (None, "gold", "gold"),
        ("gold", "silver", "silver"),
    ],
)
def test_the_deployment_and_its_pods_have_kueues_queue_label(
    of_the_object: str | None, of_the_template: str | None, want: str | None
) -> None:
    labels = {"team": "a"} | ({QUEUE: of_the_template} if of_the_template else {})
    deployment = make_deployment(
        make_spec(template={"metadata": {"labels": labels}}),
        owner=replace(OWNER, queue=of_the_object),
    )
    pods = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["metadata"]["labels"].get(QUEUE) == want
    assert pods.get(QUEUE) == want
    assert pods["team"] == "a"
    assert "team" not in deployment["metadata"]["labels"]
    assert QUEUE not in deployment["spec"]["selector"]["matchLabels"]


def test_only_the_deployment_is_annotated_with_the_placement() -> None:
    option = make_option("h100-sxm-80gb", tensor=4, pipeline=2, pool="nvidia")
    deployment = make_deployment(option=option, placement_digest="digest")
    annotations = deployment["metadata"]["annotations"]
    assert annotations[ANNOTATION_PLACED_FOR] == "digest"
    assert json.loads(annotations[ANNOTATION_PLACEMENT]) == {
        "pool": "nvidia",
        "accelerator": "h100-sxm-80gb",
        "tensorParallelSize": 4,
        "pipelineParallelSize": 2,
    }
    assert "annotations" not in deployment["spec"]["template"]["metadata"]
    assert option.placement_name == "h100-sxm-80gb"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(make_deployment(replicas=7), id="replicas"),
        pytest.param(make_deployment(surge=SurgeMode.ONE_BY_ONE), id="strategy"),
        pytest.param(
            make_deployment(placement_digest="another"), id="digest of the placement's inputs"
        ),
        pytest.param(make_deployment(option=make_option(pool="renamed")), id="the pool's name"),
        pytest.param(make_deployment(option=make_option(cost_per_hour="99")), id="prices"),
        pytest.param(
            make_deployment(
                make_spec(
                    workload={"maxModelLen": 32768, "concurrency": 99, "inputTokens": 5},
                    placement={"policy": "FewestGPUs", "accelerators": ["mi300x"]},
                    rollout={"strategy": "Recreate"},
                    replicas=9,
                )
            ),
            id="workload, policy and rollout",
        ),
    ],
)
def test_a_change_that_needs_no_restart_keeps_the_template(other: dict[str, Any]) -> None:
    assert other["spec"]["template"] == make_deployment()["spec"]["template"]


def test_a_change_that_needs_a_restart_changes_the_template() -> None:
    other = make_deployment(make_spec(workload={"maxModelLen": 65536}))
    assert other["spec"]["template"] != make_deployment()["spec"]["template"]


@pytest.mark.parametrize(
    ("accelerator", "want"),
    [
        ("h100-sxm-80gb", {"runAsNonRoot": True, "runAsUser": 2000, "runAsGroup": 0}),
        ("mi300x", {"supplementalGroups": [44, 109]}),
    ],
)
def test_security_is_as_tight_as_the_vendor_allows(accelerator: str, want: dict[str, Any]) -> None:
    deployment = make_deployment(option=make_option(accelerator))
    pod = pod_of(deployment)
    assert pod["securityContext"] == {
        "fsGroup": 2000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
        **want,
    }
    assert container_of(deployment)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostIPC", "hostNetwork", "hostPID"} & pod.keys()
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert container_of(deployment)["terminationMessagePolicy"] == "FallbackToLogsOnError"


@pytest.mark.parametrize("vendor", Vendor)
def test_every_vendor_has_defaults(vendor: Vendor) -> None:
    values = load_defaults()
    assert vendor in values.release.seconds
    assert vendor in values.shared_memory.sizes
    assert vendor in values.security.run_as
