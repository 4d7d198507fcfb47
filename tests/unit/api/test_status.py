"""The default status of the CRD does not count as a report of the operator."""

import pytest

from tonnage.api.crd import crd_manifests
from tonnage.api.status import UNREPORTED, reported_status


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ({}, {}),
        ({"status": None}, {}),
        ({"status": UNREPORTED}, {}),
        ({"status": UNREPORTED | {"replicas": 0}}, {}),
        ({"status": {"replicas": 2}}, {"replicas": 2}),
        ({"status": {"observedGeneration": 3}}, {"observedGeneration": 3}),
    ],
)
def test_the_default_of_the_crd_is_no_report(body, want):
    assert reported_status(body) == want


@pytest.mark.parametrize("name", crd_manifests())
def test_a_new_object_has_the_unreported_status(name):
    (version,) = crd_manifests()[name]["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["properties"]["status"]["default"] == UNREPORTED
