"""A later operator takes over a cluster in memory: another catalogue, other defaults of pods."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.support.in_memory.cluster import WORLD, Cluster
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.data_files import read_data_file
from tonnage.engines import defaults
from tonnage.engines.inputs import RenderSettings
from tonnage.reconcile.scheduling.context import Dependencies

LATER_RELEASE: Final = "0.33.0"
LATER_REPOSITORY: Final = "mirror.example/vllm"
LATER_VARIABLE: Final = "VLLM_LATER"

_PODS: Final = "pod_defaults.yaml"


def later_catalog(catalog: Catalog = WORLD.catalog) -> Catalog:
    """A newer default release, from other repositories."""
    images = {
        vendor: replace(image, repository=LATER_REPOSITORY)
        for vendor, image in catalog.images.items()
    }
    return replace(catalog, default_release=LATER_RELEASE, images=images)


@pytest.fixture
def take_over(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Restart the operator of a cluster as a later one."""

    def take_over(cluster: Cluster, catalog: Catalog | None = None) -> None:
        monkeypatch.setattr(defaults, "read_data_file", _read_later)
        defaults.load_defaults.cache_clear()
        settings = RenderSettings(hf_endpoint="https://mirror.example")
        cluster.world = Dependencies(catalog or later_catalog(), settings)
        cluster.start_operator()

    yield take_over
    monkeypatch.undo()
    defaults.load_defaults.cache_clear()


def _read_later(name: str) -> object:
    content: Any = copy.deepcopy(read_data_file(name))
    if name == _PODS:
        content["server"]["shutdown_timeout_seconds"] += 30
        content["startup"]["slowness"] += 1.0
        content["probes"]["readiness"]["period_seconds"] += 1
        content["resources"]["base_cpu"] += 1
        content["environment"]["every"][LATER_VARIABLE] = "1"
        content["security"]["run_as"]["amd"]["fs_group"] += 1
    return content
