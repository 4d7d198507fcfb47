"""The operator judges pods by the limits of their namespace as the API server does.

tests/integration/test_production.py holds the same table to a real API server.
"""

import pytest

from tests.support.production.contract import JUDGED, Judged, pod_of
from tests.support.production.limit_ranges import limit_range
from tonnage.kube.protocol import Object
from tonnage.placement.namespace import PodSecurityLevel
from tonnage.reconcile.observation.namespace_limits import (
    read_limit_ranges,
    read_pod_security,
    read_quotas,
)
from tonnage.workloads.pod.namespace_resources import explain_limit_ranges, explain_quotas
from tonnage.workloads.pod.pod_security import find_violation


@pytest.mark.parametrize("case", JUDGED)
def test_what_the_namespace_refuses_is_explained(case: str) -> None:
    judged = JUDGED[case]
    spec = pod_of("chat", judged.change)["spec"]
    items = read_limit_ranges(of_kind("LimitRange", judged))
    counted = [{**body, "status": body["spec"]} for body in of_kind("ResourceQuota", judged)]
    quotas = [quota for quota in read_quotas(counted) if quota.counts(None)]
    reasons = [
        explain_limit_ranges(spec, items),
        explain_quotas(spec, items, quotas),
        find_violation(spec, PodSecurityLevel(judged.level)),
    ]
    assert (reasons == [None, None, None]) is judged.is_admitted


def of_kind(kind: str, judged: Judged) -> list[Object]:
    return [body for body in judged.limits if body["kind"] == kind]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            limit_range(max={"memory": "8Gi"}),
            "LimitRange limits limits memory of container vllm to 8 GiB of memory by default, and"
            " it requests 17 GiB of memory; lower resources.requests.memory of the containers in"
            " spec.podTemplate, or change default of the LimitRange",
        ),
        (
            limit_range(min={"cpu": "4"}),
            "LimitRange limits: container vllm requests 3 CPUs, less than the minimum of 4 CPUs;"
            " raise resources.requests.cpu of the containers in spec.podTemplate, or change min of"
            " the LimitRange",
        ),
        (
            limit_range(max={"nvidia.com/gpu": "8"}),
            "LimitRange limits adds 8 nvidia.com/gpu to container vllm, which uses none; remove"
            " nvidia.com/gpu from its default and its max",
        ),
        (
            limit_range(kind="Pod", max={"cpu": "8"}),
            "LimitRange limits: the pod has no limit of cpu, which a maximum requires; set"
            " resources.limits.cpu of the containers in spec.podTemplate",
        ),
    ],
)
def test_the_message_names_the_limit_and_the_field(limits: Object, message: str) -> None:
    spec = pod_of("chat")["spec"]
    assert explain_limit_ranges(spec, read_limit_ranges([limits])) == message


@pytest.mark.parametrize(
    ("labels", "level"),
    [
        (None, PodSecurityLevel.PRIVILEGED),
        ({}, PodSecurityLevel.PRIVILEGED),
        ({"pod-security.kubernetes.io/warn": "restricted"}, PodSecurityLevel.PRIVILEGED),
        ({"pod-security.kubernetes.io/enforce": "baseline"}, PodSecurityLevel.BASELINE),
        ({"pod-security.kubernetes.io/enforce": "strict"}, PodSecurityLevel.RESTRICTED),
        ({"pod-security.kubernetes.io/enforce": ["x"]}, PodSecurityLevel.RESTRICTED),
        ("labels", PodSecurityLevel.PRIVILEGED),
    ],
)
def test_a_namespace_enforces_the_standard_of_its_label(
    labels: object, level: PodSecurityLevel
) -> None:
    assert read_pod_security({"metadata": {"name": "chat", "labels": labels}}) is level


def test_a_namespace_that_is_not_known_enforces_nothing() -> None:
    assert read_pod_security(None) is PodSecurityLevel.PRIVILEGED
