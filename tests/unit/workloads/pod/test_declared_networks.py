"""The AcceleratorPools that the page on replicas on several nodes shows connect their nodes."""

from typing import Any

import pytest
import yaml

from tests.golden.render.inputs import make_deployment, make_option
from tests.support.pages.markdown_pages import ROOT, read_page
from tonnage.api.parse import parse_model
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.engines.inputs import RenderSettings
from tonnage.fleet.pools.network import network_of
from tonnage.placement.model import Option
from tonnage.workloads.pod.pool_check import explain_pool_template

BODIES = [
    body
    for block in read_page(ROOT / "docs" / "multi-node.md").blocks
    if block.language == "yaml"
    if (body := yaml.safe_load(block.text)).get("kind") == "AcceleratorPool"
]
POOLS = {body["metadata"]["name"]: body["spec"] for body in BODIES}


def test_each_kind_of_network_is_shown() -> None:
    assert set(POOLS) == {"mi300x-pollara", "a4-highgpu", "gb200-rack"}


ATTACHED = {name: spec for name, spec in POOLS.items() if "resource" in spec["interconnect"]}


def option_on(declared: dict[str, Any]) -> Option:
    return make_option("h100-sxm-80gb", tensor=8, pipeline=2, nodes=2, declared=declared)


@pytest.mark.parametrize("declared", POOLS.values(), ids=POOLS)
def test_each_is_a_network_that_pods_can_use(declared: dict[str, Any]) -> None:
    spec = parse_model(AcceleratorPoolSpec, declared, "spec")
    assert network_of(spec, {}, "nvidia.com/gpu.clique") is not None
    pool = option_on(declared).pool
    assert explain_pool_template(pool, RenderSettings(privileged_pools=True)) is None


@pytest.mark.parametrize("declared", ATTACHED.values(), ids=ATTACHED)
def test_pods_have_what_the_pool_states(declared: dict[str, Any]) -> None:
    body, stated = make_deployment(option=option_on(declared)), declared["interconnect"]
    leader = body["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    assert stated["annotations"].items() <= leader["metadata"]["annotations"].items()
    container = leader["spec"]["containers"][0]
    assert container["resources"]["limits"][stated["resource"]] == str(stated.get("count", 1))
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert {one["name"]: one["value"] for one in stated["env"]}.items() <= env.items()
