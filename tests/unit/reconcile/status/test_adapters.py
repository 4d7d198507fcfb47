"""LoRA adapters from the spec to the status: which replicas serve them, and what a change does."""

from typing import Any

from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tests.support.in_memory.serving import served


def adapter(name: str, rank: int | None = 16) -> dict[str, Any]:
    source = {"huggingFace": {"repo": f"acme/{name}", "revision": "v1"}}
    return {"name": name, "source": source} | ({"rank": rank} if rank else {})


def adapters(*names: str) -> dict[str, Any]:
    return {"adapters": [adapter(name) for name in names]}


def listed(cluster: Cluster) -> dict[str, int]:
    return {one["name"]: one["readyReplicas"] for one in cluster.status().get("adapters", [])}


async def test_the_status_lists_each_adapter_with_the_replicas_that_serve_it() -> None:
    cluster = await served(MI300X, replicas=2, lora=adapters("sql", "legal"))
    assert listed(cluster) == {"sql": 2, "legal": 2}
    memory = cluster.status()["placements"][0]["memory"]
    assert memory["loraGiB"] > 0


async def test_a_new_adapter_counts_only_where_the_pods_have_it() -> None:
    cluster = await served(MI300X, replicas=1, lora=adapters("sql"))
    cluster.apply("llama", spec_of(replicas=1, lora=adapters("sql", "legal")))
    await cluster.reconcile("llama")
    assert listed(cluster) == {"sql": 1, "legal": 0}
    await cluster.settle()
    assert listed(cluster) == {"sql": 1, "legal": 1}


async def test_without_adapters_the_status_has_none() -> None:
    cluster = await served(MI300X)
    assert "adapters" not in cluster.status()
    assert "loraGiB" not in cluster.status()["placements"][0]["memory"]


async def test_an_unknown_rank_is_an_invalid_spec_that_names_the_field() -> None:
    cluster = Cluster(MI300X)
    volume = {"persistentVolumeClaim": {"claimName": "adapters"}}
    cluster.apply("llama", spec_of(lora={"adapters": [{"name": "sql", "source": volume}]}))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")
    assert "spec.lora.adapters[0].rank" in cluster.message("Accepted")


async def test_a_class_without_adapters_on_a_vendor_is_refused_there() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(model="deepseek-v4-flash", lora={"maxRank": 16}))
    await cluster.settle()
    assert "loads no LoRA adapters for DeepseekV4ForCausalLM" in cluster.message("Placed")
