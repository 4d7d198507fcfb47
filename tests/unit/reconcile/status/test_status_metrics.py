"""The status metrics hold what a new leader reads and what it reports, and drop deleted objects."""

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of

READY = ("Ready", "True")


def ready(cluster: Cluster) -> int:
    return dict(cluster.statuses.sums("inferencedeployments"))[READY]


async def settled() -> Cluster:
    cluster = Cluster(H100, MI300X)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    return cluster


async def test_a_reported_status_is_in_the_metrics() -> None:
    cluster = await settled()
    assert ready(cluster) == 1
    assert sum(amount for _, amount in cluster.statuses.sums("ready_replicas")) == 1


async def test_a_new_leader_reads_earlier_statuses() -> None:
    cluster = await settled()
    cluster.start_operator()
    assert cluster.statuses.kept
    assert ready(cluster) == 1
    await cluster.settle()
    assert ready(cluster) == 1


async def test_a_deleted_object_is_not_in_the_metrics() -> None:
    cluster = await settled()
    cluster.delete("llama")
    await cluster.settle()
    assert ready(cluster) == 0
    assert sum(amount for _, amount in cluster.statuses.sums("placed_objects")) == 0
