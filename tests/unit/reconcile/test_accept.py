"""Which specs can be planned: maxModelLen must not exceed what the release takes."""

import pytest

from tests.support.observed import observed
from tests.support.placing import spec_of
from tests.support.shapes import load_shape
from tonnage.api.conditions import Reason
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.reconcile.accept import Accepted, Refused, accept

CATALOG = load_catalog()
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def accepted(length: int, version: str, **config: object) -> Accepted | Refused:
    shape = load_shape("llama-3.1-8b", **config)
    spec = spec_of(workload={"maxModelLen": length}, engine={"vllm": {"version": version}})
    return accept(observed(spec, model=Checkpoint(shape)), CATALOG)


@pytest.mark.parametrize(
    ("length", "version", "config"),
    [
        (131072, "v0.32.0", {}),
        (131072, "v0.29.0", {"max_position_embeddings": 40960, "rope_scaling": YARN}),
        (16384, "v0.32.0", {"max_position_embeddings": 8192,
                            "rope_scaling": {"type": "linear", "factor": 2.0}}),
    ],
)  # fmt: skip
def test_a_max_model_len_that_vllm_takes_is_accepted(
    length: int, version: str, config: dict[str, object]
) -> None:
    assert isinstance(accepted(length, version, **config), Accepted)


@pytest.mark.parametrize(
    ("length", "version", "config"),
    [
        (131073, "v0.32.0", {}),
        (131072, "v0.30.0", {"max_position_embeddings": 40960, "rope_scaling": YARN}),
    ],
)
def test_a_longer_max_model_len_is_refused_with_the_field_and_both_lengths(
    length: int, version: str, config: dict[str, object]
) -> None:
    refused = accepted(length, version, **config)
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.INVALID_SPEC
    assert refused.message.startswith(
        f"spec.workload.maxModelLen: {length} tokens is more than the"
    )
