"""The ComputeDomain of a placement on several nodes, and the claims of its pods."""

from typing import Any

from tests.golden.render.inputs import make_deployment, make_option
from tonnage.engines.inputs import Owner
from tonnage.placement.model import Option
from tonnage.workloads.compute_domain import render_compute_domain

OWNER = Owner("chat", "llama", "u1")
CLAIM = {"name": "nvlink-channel"}


def option_on(nodes: int, *, driver: str | None = None, **interconnect: Any) -> Option:
    stated = {"computeDomain": True, "topologyKey": "nvidia.com/gpu.clique", **interconnect}
    declared = {"nodeSelector": {"team": "a"}, "interconnect": stated}
    return make_option(
        "gb200-192gb", tensor=4, pipeline=nodes, nodes=nodes, declared=declared, driver=driver
    )


def specs_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The specs of the pods of leader and workers."""
    templates = body["spec"]["leaderWorkerTemplate"]
    return [templates[role]["spec"] for role in ("leaderTemplate", "workerTemplate")]


def test_the_domain_waits_for_no_number_of_nodes() -> None:
    body = render_compute_domain(OWNER, option_on(2))
    assert body is not None
    assert (body["apiVersion"], body["kind"]) == ("resource.nvidia.com/v1beta1", "ComputeDomain")
    name = "llama-gb200-192gb-2nodes-nvlink"
    channel = {"resourceClaimTemplate": {"name": name}}
    assert body["spec"] == {"numNodes": 0, "channel": channel}
    metadata = body["metadata"]
    assert (metadata["name"], metadata["namespace"]) == (name, "chat")
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == (
        "InferenceDeployment",
        "llama",
        True,
    )


def test_each_pod_of_a_group_claims_a_channel_for_its_engine() -> None:
    template = "llama-70b-gb200-192gb-2nodes-nvlink"
    for spec in specs_of(make_deployment(option=option_on(2))):
        (container,) = spec["containers"]
        assert spec["resourceClaims"] == [CLAIM | {"resourceClaimTemplateName": template}]
        assert container["resources"]["claims"] == [CLAIM]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"


def test_pods_that_claim_their_gpus_claim_a_channel_as_well() -> None:
    for spec in specs_of(make_deployment(option=option_on(2, driver="gpu.nvidia.com"))):
        (container,) = spec["containers"]
        assert [claim["name"] for claim in spec["resourceClaims"]] == ["gpus", "nvlink-channel"]
        assert container["resources"]["claims"] == [{"name": "gpus"}, CLAIM]


def test_nothing_is_claimed_on_one_node_or_without_a_domain() -> None:
    for option in (option_on(1), option_on(2, resource="rdma/ib", computeDomain=False)):
        assert render_compute_domain(OWNER, option) is None
        body = make_deployment(option=option)
        specs = [body["spec"]["template"]["spec"]] if "template" in body["spec"] else specs_of(body)
        for spec in specs:
            assert "resourceClaims" not in spec
            assert "claims" not in spec["containers"][0]["resources"]
