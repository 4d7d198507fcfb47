"""The book of statuses has what the leader found and what it reported, and forgets who goes."""

from tests.support.cluster import H100, MI300X, Cluster, spec_of

READY = ("Ready", "True")


def ready(cluster: Cluster) -> int:
    return dict(cluster.statuses.sums("inferencedeployments"))[READY]


async def settled() -> Cluster:
    cluster = Cluster(H100, MI300X)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    return cluster


async def test_what_is_reported_is_in_the_book() -> None:
    cluster = await settled()
    assert ready(cluster) == 1
    assert sum(amount for _, amount in cluster.statuses.sums("ready_replicas")) == 1


async def test_a_leader_that_just_began_reads_what_was_reported_before() -> None:
    cluster = await settled()
    cluster.start_operator()
    assert cluster.statuses.kept
    assert ready(cluster) == 1
    await cluster.settle()
    assert ready(cluster) == 1


async def test_an_object_that_is_gone_is_not_in_the_book() -> None:
    cluster = await settled()
    cluster.delete("llama")
    await cluster.settle()
    assert ready(cluster) == 0
    assert sum(amount for _, amount in cluster.statuses.sums("placed_objects")) == 0
