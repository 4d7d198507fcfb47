"""Adapters of running pods follow the spec, pod by pod, and no pod is replaced for them."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tests.support.in_memory.serving import SETTLED
from tests.support.production.claims import volume_claim
from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.api.parse import parse_spec
from tonnage.checkpoint.adapter import AdapterFacts
from tonnage.checkpoint.facts import checkpoint_from_inline
from tonnage.checkpoint.lookup import ModelUnavailable
from tonnage.telemetry.served_adapters import AdapterCall, ServedAdapters

PAIR = {**MI300X, "gpusPerNode": 2}


def adapter(name: str, path: str = "v1", claim: str = "adapters") -> dict[str, Any]:
    source = {"claimName": claim, "path": f"{name}/{path}"}
    return {"name": name, "source": {"persistentVolumeClaim": source}}


def live(*adapters: dict[str, Any], **fields: Any) -> dict[str, Any]:
    sizes = {"maxRank": 16, "maxCpuLoras": 8, **fields}
    return {"updates": "Live", "adapters": list(adapters), **sizes}


def with_claims() -> Cluster:
    cluster = Cluster(PAIR)
    for claim in ("adapters", "others"):
        cluster.administer(volume_claim(claim, bound=True))
    return cluster


async def serving(*adapters: dict[str, Any], replicas: int = 2) -> Cluster:
    cluster = with_claims()
    cluster.pod_adapters.answers = True
    cluster.apply("llama", spec_of(lora=live(*adapters), replicas=replicas))
    await cluster.settle()
    return cluster


async def change(cluster: Cluster, *adapters: dict[str, Any], **spec: Any) -> None:
    cluster.apply("llama", spec_of(lora=live(*adapters), **{"replicas": 2, **spec}))
    await cluster.settle()


def listed(cluster: Cluster) -> dict[str, int]:
    return {one["name"]: one["readyReplicas"] for one in cluster.status()["adapters"]}


def loaded(cluster: Cluster) -> list[dict[str, str]]:
    """What each pod lists."""
    uids = {pod["metadata"]["uid"] for pod in cluster.pods()}
    answers = cluster.pod_adapters.served.items()
    return [dict(answer.adapters or {}) for start, answer in answers if start.split("/")[0] in uids]


def uids(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in cluster.pods()}


async def test_every_replica_serves_an_adapter_before_the_status_says_so() -> None:
    cluster = await serving(adapter("sql"))
    assert cluster.conditions() == SETTLED
    assert loaded(cluster) == [{"sql": "/adapters/adapters/sql/v1"}] * 2
    assert listed(cluster) == {"sql": 2}


async def test_adapters_are_added_changed_and_removed_without_another_pod() -> None:
    cluster = await serving(adapter("sql"), adapter("legal"))
    before, template = uids(cluster), cluster.deployment("llama-mi300x")["spec"]["template"]
    await change(cluster, adapter("sql", "v2"), adapter("code"))
    assert (
        loaded(cluster)
        == [{"sql": "/adapters/adapters/sql/v2", "code": "/adapters/adapters/code/v1"}] * 2
    )
    assert listed(cluster) == {"sql": 2, "code": 2}
    assert cluster.deployment("llama-mi300x")["spec"]["template"] == template
    assert uids(cluster) == before
    await change(cluster, adapter("code"))
    assert loaded(cluster) == [{"code": "/adapters/adapters/code/v1"}] * 2
    assert uids(cluster) == before


async def test_a_changed_adapter_is_unloaded_first_and_adapters_are_never_too_many() -> None:
    cluster = await serving(adapter("sql"), adapter("legal"))
    cluster.pod_adapters.calls.clear()
    await change(cluster, adapter("legal"), adapter("sql", "v2"), adapter("code"))
    assert cluster.pod_adapters.calls[0].calls == (
        AdapterCall("sql"),
        AdapterCall("sql", "/adapters/adapters/sql/v2"),
        AdapterCall("code", "/adapters/adapters/code/v1"),
    )


async def test_a_new_replica_and_a_restarted_server_get_what_they_lack() -> None:
    cluster = await serving(adapter("sql"), replicas=1)
    await change(cluster, adapter("sql"), replicas=2)
    assert listed(cluster) == {"sql": 2}
    start = next(iter(cluster.pod_adapters.served))
    cluster.pod_adapters.served[start] = ServedAdapters({})
    await cluster.reconcile("llama")
    assert listed(cluster) == {"sql": 1}
    await cluster.settle()
    assert listed(cluster) == {"sql": 2}


async def test_a_restarted_server_gets_its_adapters_while_the_model_cannot_be_read() -> None:
    cluster = with_claims()
    cluster.pod_adapters.answers = True
    inline = parse_spec(spec_of()).model.source.inline
    assert inline is not None
    cluster.hub.answer = checkpoint_from_inline(inline)
    model = {"source": {"huggingFace": {"repo": "acme/llama"}}}
    cluster.apply("llama", spec_of(lora=live(adapter("sql")), replicas=1) | {"model": model})
    await cluster.settle()
    assert listed(cluster) == {"sql": 1}
    reason = Reason.MODEL_SOURCE_UNREACHABLE
    cluster.hub.answer = ModelUnavailable(reason, "the Hub does not answer", 30.0)
    (start,) = cluster.pod_adapters.served
    cluster.pod_adapters.served[start] = ServedAdapters({})
    cluster.start_operator()
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("True", "Valid")
    assert listed(cluster) == {"sql": 1}


async def test_what_another_client_loaded_is_unloaded_without_an_event() -> None:
    cluster = await serving(adapter("sql"), replicas=1)
    start = next(iter(cluster.pod_adapters.served))
    served = {"sql": "/adapters/adapters/sql/v1", "mine": "/tmp/mine"}
    cluster.pod_adapters.served[start] = ServedAdapters(served)
    await cluster.wait(delays.ADAPTER_REFRESH)
    assert loaded(cluster) == [{"sql": "/adapters/adapters/sql/v1"}]


async def test_an_adapter_that_pods_refuse_is_not_ready_and_says_why() -> None:
    cluster = with_claims()
    cluster.pod_adapters.answers = True
    cluster.pod_adapters.refuses["/adapters/adapters/bad/v1"] = "answers 500"
    cluster.apply("llama", spec_of(lora=live(adapter("bad"), adapter("sql")), replicas=1))
    await cluster.settle()
    bad, sql = cluster.status()["adapters"]
    (pod,) = (pod["metadata"]["name"] for pod in cluster.pods())
    assert bad == {"name": "bad", "readyReplicas": 0, "message": f"pod {pod} answers 500"}
    assert sql == {"name": "sql", "readyReplicas": 1}


async def test_pods_that_do_not_answer_count_as_serving_nothing() -> None:
    cluster = with_claims()
    cluster.apply("llama", spec_of(lora=live(adapter("sql")), replicas=1))
    await cluster.settle()
    assert listed(cluster) == {"sql": 0}
    assert cluster.pod_adapters.calls == []
    assert "was not asked" in cluster.status()["adapters"][0]["message"]


async def test_a_refused_spec_changes_no_running_pod() -> None:
    cluster = await serving(adapter("sql"))
    cluster.hub.adapter = AdapterFacts(rank=64)
    hub = {"name": "big", "source": {"huggingFace": {"repo": "acme/big"}}}
    before = uids(cluster)
    await change(cluster, hub)
    assert cluster.conditions()["Accepted"][0] == "False"
    assert "spec.lora.maxRank: 16 is below rank 64" in cluster.message("Accepted")
    (big,) = cluster.status()["adapters"]
    assert big["readyReplicas"] == 0
    assert big["message"].endswith("gets it only once the spec is accepted")
    assert loaded(cluster) == [{"sql": "/adapters/adapters/sql/v1"}] * 2
    assert uids(cluster) == before


async def test_what_the_files_of_adapters_say_changes_no_running_pod() -> None:
    hub = {"name": "sql", "source": {"huggingFace": {"repo": "acme/sql"}}}
    cluster = with_claims()
    cluster.pod_adapters.answers = True
    cluster.hub.adapter = AdapterFacts(rank=8, target_modules=("q_proj",))
    cluster.apply("llama", spec_of(lora=live(hub), replicas=2))
    await cluster.settle()
    (container,) = cluster.deployment("llama-mi300x")["spec"]["template"]["spec"]["containers"]
    assert "--lora-target-modules" not in container["args"]
    before = uids(cluster)
    cluster.hub.adapter = AdapterFacts(rank=16, target_modules=("o_proj",))
    await change(cluster, hub | {"name": "chat"})
    assert loaded(cluster) == [{"chat": "acme/sql"}] * 2
    assert uids(cluster) == before


async def test_a_new_claim_is_another_volume_and_replaces_the_pods() -> None:
    cluster = await serving(adapter("sql"))
    before = uids(cluster)
    await change(cluster, adapter("sql"), adapter("legal", claim="others"))
    assert uids(cluster).isdisjoint(before)
    assert listed(cluster) == {"sql": 2, "legal": 2}


@pytest.mark.parametrize("updates", ["Live", "Rolling"])
async def test_a_change_between_rolling_and_live_replaces_the_pods(updates: str) -> None:
    cluster = with_claims()
    cluster.pod_adapters.answers = True
    other = {"Live": "Rolling", "Rolling": "Live"}[updates]
    cluster.apply("llama", spec_of(lora=live(adapter("sql")) | {"updates": other}, replicas=1))
    await cluster.settle()
    before = uids(cluster)
    cluster.apply("llama", spec_of(lora=live(adapter("sql")) | {"updates": updates}, replicas=1))
    await cluster.settle()
    assert uids(cluster).isdisjoint(before)
    template = cluster.deployment("llama-mi300x")["spec"]["template"]
    assert ("--lora-modules" in template["spec"]["containers"][0]["args"]) == (updates == "Rolling")


async def test_pods_that_wait_for_their_replacement_load_no_adapters() -> None:
    cluster = await serving(adapter("sql"), replicas=1)
    cluster.pod_adapters.calls.clear()
    lora = live(adapter("sql", "v2")) | {"updates": "Rolling"}
    cluster.apply("llama", spec_of(lora=lora, replicas=1))
    await cluster.reconcile("llama")
    (sql,) = cluster.status()["adapters"]
    assert sql["readyReplicas"] == 0
    assert sql["message"].endswith("loads none any more, with updates Rolling")
    assert cluster.pod_adapters.calls == []


@pytest.mark.parametrize(
    ("listing", "want", "message"),
    [
        ({"sql": "/adapters/adapters/sql/v1"}, 1, None),
        ({"sql": "/adapters/adapters/sql/v0"}, 0, "started with other files of it"),
        ({}, 0, "does not list it on /v1/models"),
    ],
)
async def test_with_rolling_the_list_of_a_pod_counts_too(
    listing: dict[str, str], want: int, message: str | None
) -> None:
    cluster = with_claims()
    lora = live(adapter("sql")) | {"updates": "Rolling"}
    cluster.apply("llama", spec_of(lora=lora, replicas=1))
    await cluster.settle()
    assert listed(cluster) == {"sql": 1}, "a pod without an answer is ready with its adapters"
    cluster.pod_adapters.answers = True
    for pod in cluster.pods():
        start = f"{pod['metadata']['uid']}/0/{pod['status'].get('podIP')}"
        cluster.pod_adapters.served[start] = ServedAdapters(listing)
    await cluster.reconcile("llama")
    (sql,) = cluster.status()["adapters"]
    assert sql["readyReplicas"] == want
    assert message is None or message in sql["message"]
    assert cluster.pod_adapters.calls == []
