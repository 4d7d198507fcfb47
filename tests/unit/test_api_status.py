"""A status that nobody but the API server has written is no status."""

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
def test_a_new_object_says_that_it_was_not_looked_at(name):
    (version,) = crd_manifests()[name]["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["properties"]["status"]["default"] == UNREPORTED
