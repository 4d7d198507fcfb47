"""What is read of the Jobs that download weights."""

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.in_memory.weights import prefetching_spec, read_from_hub
from tonnage.api.names import ANNOTATION_PREFETCH_NODE
from tonnage.api.parse import parse_spec
from tonnage.engines.inputs import Owner
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.optional.weights import MOST_PREFETCH_JOBS, read_weights

OWNER = Owner("chat", "llama", "uid-1")


def job(number: int) -> Object:
    """A Job that the object controls, of which nothing has ended."""
    return {
        "metadata": {
            "name": f"llama-prefetch-{number}",
            "namespace": OWNER.namespace,
            "uid": f"job-{number}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-27T12:00:00Z",
            "annotations": {ANNOTATION_PREFETCH_NODE: f"gpu-{number}"},
            "ownerReferences": [{"uid": OWNER.uid, "controller": True}],
        }
    }


@pytest.mark.parametrize(("count", "requests"), [(2, 4), (MOST_PREFETCH_JOBS + 1, 0)])
async def test_jobs_that_a_user_adds_cost_no_request_each(count: int, requests: int) -> None:
    api, spec = FakeApi(), parse_spec(prefetching_spec(1))
    bodies = [job(number) for number in range(count)]
    read = await read_weights(api, bodies, spec, read_from_hub(), OWNER, ())
    assert len(read.prefetch_jobs) == count
    assert api.call_count == requests
