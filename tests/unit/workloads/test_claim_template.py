"""The ResourceClaimTemplate of a placement, whose spec is immutable."""

from itertools import product

from tests.golden.render.inputs import make_option
from tonnage.api.shard import Shard
from tonnage.api.workload import Context
from tonnage.engines.inputs import Owner
from tonnage.workloads.claim_template import claim_template_of, render_claim_template


def test_another_spec_has_another_name() -> None:
    """An object that is given to another shard, or serves other requests, keeps its children: to
    change the spec of one would be refused."""
    specs = {}
    shards, contexts = (Shard(), Shard("east"), Shard("west")), (None, Context.LONG)
    for shard, context, tensor in product(shards, contexts, (2, 4)):
        owner = Owner("chat", "llama", "u1", context=context, shard=shard)
        option = make_option("h100-sxm-80gb", tensor=tensor, driver="gpu.nvidia.com")
        body = render_claim_template(owner, option)
        assert body is not None
        assert body["metadata"]["name"] == claim_template_of(owner, option)
        specs.setdefault(body["metadata"]["name"], []).append(body["spec"])
    assert len(specs) == 12
    assert all(len(same) == 1 for same in specs.values())
