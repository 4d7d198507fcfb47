"""What recordings of earlier releases say of digests: a later release computes the same ones.

A digest of `placement_digest` that comes out otherwise takes all replicas for misplaced, so these
are pinned here as well as recorded.
"""

import pytest

from e2e.recordings.recording import Recording, part_of
from e2e.recordings.restore import CHILD_MANAGER, rendered_digest
from tests.support.faults.recordings import RECORDINGS, load_recording
from tests.support.in_memory.cluster import WORLD, Cluster
from tests.support.specs.observed import observed
from tonnage.api.names import (
    ANNOTATION_PLACED_FOR,
    ANNOTATION_RENDERED,
    LABEL_KUEUE_QUEUE,
    LABEL_OWNER,
)
from tonnage.api.parse import parse_spec
from tonnage.kube.kinds import ACCELERATOR_POOLS, NODES
from tonnage.reconcile.observation.attempts import circumstances_of
from tonnage.reconcile.observation.digests import placement_digest

PLACED_FOR = {
    "adjusted": "8718d291a2fa0c69",
    "allow-list": "ce22b9d4b86a56e5",
    "approved": "0c122715f14c5f4f",
    "arguments": "a4bce0d7c97ff8b4",
    "awaits-first-approval": "0c122715f14c5f4f",
    "awaits-next-approval": "0c122715f14c5f4f",
    "by-workload": "5d5450c914902d24",
    "cheapest": "83ebcdd7728666d7",
    "config-map": "610f5ea6a144a341",
    "declared-pool": "b931bdaf728ad9aa",
    "fastest": "375fa4a1e11961f1",
    "fell-back": "187a2396b1f83dd9",
    "fewest-gpus": "47f20a65109839a2",
    "gateway": "0c122715f14c5f4f",
    "long-context": "2126c5e31f0b1840",
    "long-context-long": "2798c0222dab3545",
    "partly-waits": "ec65209438967fca",
    "paused": "0c122715f14c5f4f",
    "pinned": "77ba1307900dfd9e",
    "plain": "0c122715f14c5f4f",
    "quantized": "3a443989e665d34d",
    "quantized-checkpoint": "90cdf3b65516ccf0",
    "queued": "0c122715f14c5f4f",
    "rolled-back": "460786ff5a2dc978",
    "scaled": "0c122715f14c5f4f",
    "scaled-by-load": "0c122715f14c5f4f",
    "several": "0c122715f14c5f4f",
    "spread": "429d2d253b9ca2b5",
    "stopped": "0c122715f14c5f4f",
    "template": "0c122715f14c5f4f",
    "tensor-parallel": "3b24c13c1fa996e8",
    "too-large": "9d18b67532327634",
    "volume": "9278f8e9a74fe512",
    "waits-for-a-node": "c42f57ed7030d29d",
    "waits-for-gpus": "e6619f2b5dcddba9",
}
"""The digests of the operator of commit 795187e, by InferenceDeployment."""


def digest_of(body):
    """An object that has another endpoint for long requests is placed for the short ones alone."""
    spec = parse_spec(body["spec"])
    return placement_digest(spec.model_copy(update={"workload": spec.workload.short_part}))


def digests(recording):
    return {
        body["metadata"]["name"]: digest_of(body)
        for body in recording.of_kind("InferenceDeployment")
    }


def test_placed_for_digests_of_the_recorded_specs_are_as_pinned():
    assert digests(load_recording("795187e")) == PLACED_FOR


@pytest.mark.parametrize("commit", RECORDINGS)
def test_placed_for_digests_of_the_previous_release_still_match(commit):
    recording = load_recording(commit)
    expected = digests(recording)
    deployments = recording.of_kind("Deployment")
    assert len(deployments) >= 20
    for body in deployments:
        owner = body["metadata"]["labels"][LABEL_OWNER]
        recorded = body["metadata"]["annotations"][ANNOTATION_PLACED_FOR]
        assert recorded == expected[owner], body["metadata"]["name"]


@pytest.mark.parametrize("commit", RECORDINGS)
def test_the_digest_of_a_child_follows_from_the_fields_that_the_operator_owns(commit):
    recording = load_recording(commit)
    for kind in ("Deployment", "Service", "InferencePool", "InferenceDeployment"):
        for body in recording.of_kind(kind):
            part = part_of(body, CHILD_MANAGER)
            recorded = part["metadata"].get("annotations", {}).get(ANNOTATION_RENDERED)
            if recorded is not None:
                assert rendered_digest(part) == recorded, body["metadata"]["name"]


@pytest.mark.parametrize("commit", RECORDINGS)
def test_a_recording_is_small_and_the_same_content_gives_the_same_file(commit, tmp_path):
    first, second = tmp_path / "first.json.gz", tmp_path / "second.json.gz"
    load_recording(commit).save(first)
    Recording.load(first).save(second)
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 1_500_000


def test_a_part_has_the_fields_of_one_manager_and_what_identifies_them():
    container = {"name": "vllm", "image": "one", "args": ["a", "b"], "stdin": True}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "llama",
            "namespace": "chat",
            "uid": "1",
            "finalizers": ["mine", "theirs"],
            "managedFields": [
                {
                    "manager": "mine",
                    "fieldsV1": {
                        "f:metadata": {"f:finalizers": {'v:"mine"': {}}},
                        "f:spec": {
                            "f:containers": {
                                'k:{"name":"vllm"}': {".": {}, "f:name": {}, "f:args": {}}
                            }
                        },
                    },
                },
                {
                    "manager": "mine",
                    "subresource": "status",
                    "fieldsV1": {"f:status": {"f:phase": {}}},
                },
                {"manager": "theirs", "fieldsV1": {"f:spec": {"f:nodeName": {}}}},
            ],
        },
        "spec": {"nodeName": "one", "containers": [container, {"name": "other"}]},
        "status": {"phase": "Running"},
    }
    identity = {"apiVersion": "v1", "kind": "Pod"}
    metadata = {"name": "llama", "namespace": "chat"}
    assert part_of(body, "mine") == {
        **identity,
        "metadata": {**metadata, "finalizers": ["mine"]},
        "spec": {"containers": [{"name": "vllm", "args": ["a", "b"]}]},
    }
    assert part_of(body, "mine", "status") == {
        **identity,
        "metadata": metadata,
        "status": {"phase": "Running"},
    }
    assert part_of(body, "none") == {**identity, "metadata": metadata}


@pytest.mark.parametrize("name", ["adjusted", "rolled-back"])
def test_a_plan_that_failed_under_the_previous_release_still_counts_as_failed(name):
    """Else the operator would try it again, in place of what serves."""
    recording = load_recording("795187e")
    cluster = Cluster()
    for kind in (NODES, ACCELERATOR_POOLS):
        for body in recording.of_kind(kind.kind):
            cluster.api.put(kind, body)
    cluster.watch()
    (body,) = (
        body
        for body in recording.of_kind("InferenceDeployment")
        if body["metadata"]["name"] == name
    )
    spec = parse_spec(body["spec"])
    queue = (body["metadata"].get("labels") or {}).get(LABEL_KUEUE_QUEUE)
    observation = observed(spec, queue=queue)
    now = circumstances_of(observation, spec, cluster.fleet.view(), WORLD.catalog)
    assert {plan["circumstances"] for plan in body["status"]["failedPlans"]} == {now}
