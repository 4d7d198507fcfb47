"""After a restart no Hub is needed to scale, to fail over and to stay Ready."""

import base64
import json
import zlib

import pytest

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of, write_count
from tests.support.in_memory.serving import SETTLED
from tonnage.api.conditions import Reason
from tonnage.api.names import ANNOTATION_MODEL_FACTS
from tonnage.checkpoint.kept_facts import encode_facts
from tonnage.checkpoint.lookup import ModelAnswer, ModelPending, ModelUnavailable
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.shape import parse_config_text
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import Object

ONE = {**MI300X, "gpusPerNode": 2}
REPO, COMMIT = "acme/llama", "c0ffee" + "0" * 34
PENDING = ModelPending("reading acme/llama from the Hub")
DOWN = ModelUnavailable(Reason.MODEL_SOURCE_UNREACHABLE, "the Hub does not answer", 30.0)
REVOKED = ModelUnavailable(Reason.MODEL_ACCESS_DENIED, "the token is revoked", 30.0)
GONE = ModelUnavailable(Reason.MODEL_NOT_FOUND, "there is no acme/llama", 30.0)
NO_ANSWER = pytest.mark.parametrize(
    "answer", [PENDING, DOWN, REVOKED, GONE], ids=["pending", "down", "revoked", "gone"]
)


def hub_spec(revision: str = "main", **spec: object) -> Object:
    source = {"source": {"huggingFace": {"repo": REPO, "revision": revision}}}
    return spec_of() | {"model": source} | spec


def read_from_hub(revision: str = "main") -> Checkpoint:
    config = json.dumps(spec_of()["model"]["source"]["inline"]["config"]).encode()
    size = 16 * 2**30
    checkpoint = make_checkpoint(parse_config_text(config), weights_bytes=size, revision=COMMIT)
    return checkpoint.with_kept_facts(encode_facts(REPO, revision, config, checkpoint))


async def restarted(answer: ModelAnswer, *groups: Object, **spec: object) -> Cluster:
    """An object that serves, and an operator that was started again since."""
    cluster = Cluster(*(groups or (ONE,)))
    cluster.hub.answer = read_from_hub()
    cluster.apply("llama", hub_spec(**spec))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    cluster.hub.answer = answer
    cluster.start_operator()
    await cluster.settle()
    return cluster


def service(cluster: Cluster) -> Object:
    return cluster.api.object(SERVICES, NAMESPACE, "llama")


@NO_ANSWER
async def test_more_replicas_come(answer: ModelAnswer) -> None:
    cluster = await restarted(answer)
    cluster.apply("llama", hub_spec(replicas=2))
    await cluster.settle()
    assert len(cluster.pods()) == 2
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    assert cluster.status()["model"]["revision"] == COMMIT


@NO_ANSWER
async def test_replicas_of_a_lost_node_go_to_another_pool(answer: ModelAnswer) -> None:
    cluster = await restarted(answer, ONE, H100)
    assert cluster.deployments() == ["llama-mi300x"]
    cluster.leave("mi300x")
    await cluster.settle()
    await cluster.wait(600)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_no_restart_changes_a_status_while_the_hub_is_read() -> None:
    cluster = await restarted(PENDING)
    kinds = (INFERENCE_DEPLOYMENTS, SERVICES)
    writes = write_count(cluster.api, kinds)
    cluster.hub.answer = read_from_hub()
    await cluster.resync()
    assert cluster.conditions() == SETTLED
    assert write_count(cluster.api, kinds) == writes


@pytest.mark.parametrize("answer", [DOWN, REVOKED, GONE], ids=["down", "revoked", "gone"])
async def test_a_condition_says_what_is_not_known_until_the_hub_answers(
    answer: ModelUnavailable,
) -> None:
    cluster = await restarted(answer)
    assert cluster.conditions() == SETTLED | {"Accepted": ("True", "ModelNotConfirmed")}
    assert f"as of commit {COMMIT}, which is not confirmed now: {answer.message}" in (
        cluster.message("Accepted")
    )
    cluster.hub.answer = read_from_hub()
    await cluster.wait(answer.retry_after_seconds or 0)
    assert cluster.conditions() == SETTLED


async def test_facts_of_another_revision_are_not_used() -> None:
    cluster = await restarted(DOWN)
    cluster.apply("llama", hub_spec("v2", replicas=2))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "ModelSourceUnreachable")
    assert len(cluster.pods()) == 1
    cluster.hub.answer = read_from_hub("v2")
    await cluster.wait(30)
    assert len(cluster.pods()) == 2
    assert ANNOTATION_MODEL_FACTS in service(cluster)["metadata"]["annotations"]


EDITED = {
    "removed": None,
    "empty": "",
    "no base64": "%",
    "of another model": base64.b64encode(zlib.compress(b'{"repo": "acme/other"}')).decode(),
}


@pytest.mark.parametrize("text", EDITED.values(), ids=EDITED)
async def test_facts_that_somebody_edited_are_refused_and_written_again(text: str | None) -> None:
    cluster = await restarted(PENDING)
    body = service(cluster)
    kept = body["metadata"]["annotations"].pop(ANNOTATION_MODEL_FACTS)
    if text is not None:
        body["metadata"]["annotations"][ANNOTATION_MODEL_FACTS] = text
    cluster.api.put(SERVICES, body)
    cluster.hub.answer = DOWN
    cluster.apply("llama", hub_spec(replicas=2))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "ModelSourceUnreachable")
    assert len(cluster.pods()) == 1, "what runs stays"
    cluster.hub.answer = read_from_hub()
    await cluster.wait(30)
    assert len(cluster.pods()) == 2
    assert service(cluster)["metadata"]["annotations"][ANNOTATION_MODEL_FACTS] == kept
