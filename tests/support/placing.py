"""From raw nodes and a spec to a decision, as the loop goes."""

from dataclasses import replace
from typing import Any

from tests.support.gpu_nodes import Raw, snapshot_of
from tests.support.shapes import load_shape
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import parse_spec
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint, Quantization
from tonnage.fleet.pools import build_pools
from tonnage.placement.decide import decide
from tonnage.placement.model import Candidate, Decision, Request

CATALOG = load_catalog()
OWNER = ("chat", "llama")


def checkpoint_of(name: str) -> Checkpoint:
    """A model by its config.json under tests/data/configs."""
    return Checkpoint(load_shape(name))


LLAMA_8B = checkpoint_of("llama-3.1-8b")
LLAMA_70B = checkpoint_of("llama-3.3-70b")
DEEPSEEK_V3 = checkpoint_of("deepseek-v3")
# Meta's own FP8 checkpoint uses a method that vLLM has deprecated; this is one in plain fp8.
LLAMA_405B_FP8 = Checkpoint(
    replace(
        checkpoint_of("llama-3.1-405b-fp8").shape,
        quantization=Quantization(method="fp8", weight_bits=8),
    )
)


def spec_of(**spec: Any) -> InferenceDeploymentSpec:
    """A spec with a workload of 32k tokens; `workload` and `placement` are added to, all other
    fields replaced."""
    workload = {"maxModelLen": 32768, **spec.pop("workload", {})}
    source = {"inline": {"config": {"model_type": "llama"}}}
    return parse_spec({"model": {"source": source}, "workload": workload, **spec})


def decide_on(nodes: list[Raw], checkpoint: Checkpoint = LLAMA_70B, **how: Any) -> Decision:
    """What is decided for a checkpoint on these nodes; `how` is of the snapshot (pods,
    reservations, declared_pools), of the request (keep, held), or of the spec."""
    fleet = {key: how.pop(key) for key in ("pods", "reservations", "declared_pools") if key in how}
    wish = {key: how.pop(key) for key in ("keep", "held") if key in how}
    pools = build_pools(snapshot_of(nodes, **fleet), CATALOG, excluding=OWNER)
    return decide(Request(OWNER, spec_of(**how), checkpoint, **wish), pools, CATALOG)


def by_pool(decision: Decision) -> dict[str, Candidate]:
    """The candidates by their pool's name."""
    return {candidate.pool.name: candidate for candidate in decision.candidates}
