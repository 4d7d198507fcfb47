"""The measured load sets the number of replicas if the spec scales by it."""

import re
from dataclasses import replace
from math import ceil

import pytest

from tests.support.in_memory.approving import approve
from tests.support.in_memory.cluster import H100, L40S, MI300X, Cluster, spec_of, write_count
from tests.support.in_memory.controllers import ready, without_image
from tests.support.load.replica_load import ReplicaLoad
from tonnage.demand.signals import LoadSample
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, SERVICES
from tonnage.reconcile.autoscaling import follow_load
from tonnage.reconcile.key import Key
from tonnage.reconcile.observe import observe
from tonnage.reconcile.status.scaling import scaling_status

LLAMA = Key("chat", "llama")
INTERVAL = 15.0
ALL = (DEPLOYMENTS, SERVICES, INFERENCE_DEPLOYMENTS)
SMALL = {"name": "mi300x", "accelerator": "mi300x", "gpusPerNode": 3}


async def followed(
    *groups, work=0.4, replicas=None, placement=None, approval="Automatic", **scaling
):
    """A cluster whose one object scales by load, and that load, in units of a full replica."""
    cluster = Cluster(*(groups or (MI300X,)))
    load = ReplicaLoad(cluster, work=work)
    scaling = {"maxReplicas": 6, "targets": {"waitingRequests": 1}} | scaling
    spec = spec_of(
        scaling=scaling,
        replicas=replicas,
        workload={"concurrency": 4},
        placement=placement or {},
        approval=approval,
    )
    cluster.apply("llama", spec)
    await cluster.settle()
    return cluster, load


def with_zero(after="15m"):
    queue = {"metric": "gateway_queued", "matchLabels": {"model": "llama"}}
    return {"after": after, "queuedRequests": queue}


async def sample(cluster, seconds=INTERVAL, every=INTERVAL):
    """Let `seconds` pass in steps of `every`, with a sample of the load at each."""
    for _ in range(round(seconds / every)):
        await cluster.wait(every)


def replicas(cluster):
    """Wanted, and ready."""
    status = cluster.status()
    return status["desiredReplicas"], status["readyReplicas"]


def active(cluster):
    return cluster.conditions()["ScalingActive"]


async def test_more_load_is_followed_at_once_and_less_after_five_minutes():
    cluster, load = await followed()
    assert replicas(cluster) == (1, 1)
    load.work = 3.6
    await sample(cluster)
    assert replicas(cluster) == (4, 4)
    assert active(cluster) == ("True", "LoadMeasured")
    load.work = 0.8
    await sample(cluster)
    await sample(cluster, 285, every=57)
    assert replicas(cluster) == (4, 4)
    await sample(cluster, 30)
    assert replicas(cluster) == (1, 1)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_the_condition_explains_the_number():
    cluster, load = await followed()
    load.work = 3.6
    await sample(cluster)
    assert cluster.status()["scaling"]["wantedReplicas"] == 4
    message = cluster.message("ScalingActive")
    assert re.match(r"[0-9.]+ requests in flight, 10.0 a replica at most: waitingRequests", message)
    assert re.search(r"asks for 3\.7. replicas; 4 replicas wanted$", message)
    load.work = 0.4
    await sample(cluster)
    assert re.search(
        r"asks for 0\.\d+ replicas; 4 replicas wanted, 1 once the stabilization window has passed$",
        cluster.message("ScalingActive"),
    )


async def test_replicas_come_and_go_where_the_others_are():
    cluster, load = await followed(MI300X, H100)
    before = cluster.deployments()
    for work in (5.5, 0.1):
        load.work = work
        await sample(cluster, 600, every=60)
        assert cluster.deployments() == before
    assert cluster.recorder.events.count(("Moving", "FellBack")) == 0


async def test_replicas_without_capacity_wait_on_their_pool():
    cluster, load = await followed(SMALL, H100, placement={"fallback": {"after": "1m"}})
    assert cluster.deployments() == ["llama-mi300x"]
    load.work = 5.5
    await sample(cluster, 3600, every=300)
    assert cluster.deployments() == ["llama-mi300x"]
    assert replicas(cluster) == (6, 3)
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    load.work = 2.6
    await sample(cluster, 330, every=30)
    assert replicas(cluster) == (3, 3)


async def test_the_first_pool_takes_the_replicas_back_even_if_it_has_capacity_for_some_only():
    placement = {
        "fallback": {"after": "1m", "back": "WhenPossible"},
        "rebalance": {"stabilizationWindow": "5m"},
    }
    cluster, load = await followed(MI300X, {**H100, "gpusPerNode": 2}, placement=placement)
    assert cluster.deployments() == ["llama-mi300x"]
    cluster.leave("mi300x")
    await sample(cluster, 90)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    load.work = 5.5
    await sample(cluster, 60)
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")
    cluster.join(**MI300X)
    await sample(cluster, 285)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    await sample(cluster, 30)
    assert cluster.deployments() == ["llama-mi300x"]
    wanted, serve = replicas(cluster)
    assert serve == wanted


async def test_a_pool_that_is_lost_is_left_for_as_many_as_carry_the_same_elsewhere():
    placement = {"policy": "HighestThroughput", "fallback": {"after": "1m"}}
    cluster, load = await followed(H100, {**L40S, "count": 6}, placement=placement, maxReplicas=40)
    load.work = 3.6
    await sample(cluster)
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    each = cluster.status()["scaling"]["replica"]["tokensPerSecond"]
    load.answers = False
    cluster.leave("h100")
    await sample(cluster, 120)
    assert cluster.deployments() == ["llama-l40s"]
    scaling = cluster.status()["scaling"]
    assert scaling["wantedReplicas"] == ceil(4 * each / scaling["replica"]["tokensPerSecond"])
    assert scaling["wantedReplicas"] > 8


async def test_a_migration_by_choice_takes_as_many_as_carry_the_same():
    rebalance = {"policy": "WhenCheaperBy", "percent": 1, "stabilizationWindow": "1m"}
    cluster, load = await followed(H100, placement={"rebalance": rebalance})
    load.work = 3.6
    await sample(cluster)
    each = cluster.status()["scaling"]["replica"]["tokensPerSecond"]
    load.answers = False
    cluster.join(**MI300X)
    await sample(cluster, 300, every=60)
    assert cluster.deployments() == ["llama-mi300x"]
    scaling = cluster.status()["scaling"]
    assert scaling["wantedReplicas"] == ceil(4 * each / scaling["replica"]["tokensPerSecond"]) == 5


@pytest.mark.parametrize("blindness", ["no answer", "one replica unseen", "none seen"])
async def test_an_unseen_load_removes_no_replica(blindness):
    cluster, load = await followed(work=3.6)
    await sample(cluster)
    load.work = 0.0
    load.answers = blindness != "no answer"
    load.unseen = {"one replica unseen": 1, "none seen": 4}.get(blindness, 0)
    await sample(cluster, 1800, every=200)
    assert replicas(cluster) == (4, 4)


async def test_without_an_answer_it_says_so_and_writes_once():
    cluster, load = await followed(work=3.6)
    await sample(cluster)
    load.answers = False
    await sample(cluster)
    assert active(cluster) == ("False", "NoOpinion")
    assert cluster.message("ScalingActive") == (
        "Prometheus gives no answer that can be used; the number of wanted replicas stays 4"
    )
    before = write_count(cluster.api, ALL)
    await sample(cluster, 900, every=90)
    assert write_count(cluster.api, ALL) == before


async def test_a_load_that_changes_a_little_writes_nothing():
    cluster, load = await followed(work=3.6)
    await sample(cluster, 60)
    before = write_count(cluster.api, ALL)
    for number in range(20):
        load.work = 3.45 + number % 3 / 20
        await sample(cluster)
    assert write_count(cluster.api, ALL) == before


async def test_the_load_is_sampled_at_every_interval_and_only_for_objects_that_scale_by_it():
    cluster, load = await followed()
    before = len(load.asked)
    await sample(cluster, 10 * INTERVAL)
    assert len(load.asked) - before == 10
    cluster.apply("llama", spec_of(replicas=None, workload={"concurrency": 4}))
    await cluster.settle()
    before = len(load.asked)
    assert await cluster.reconcile("llama") is None
    await sample(cluster, 10 * INTERVAL)
    assert len(load.asked) == before
    assert "scaling" not in cluster.status()
    assert "ScalingActive" not in cluster.conditions()


async def test_a_new_operator_goes_on_where_the_old_one_was():
    cluster, load = await followed(work=3.6)
    await sample(cluster)
    load.work = 0.1
    await sample(cluster, 150)
    cluster.start_operator()
    await sample(cluster, 135)
    assert replicas(cluster) == (4, 4)
    await sample(cluster, 45)
    assert replicas(cluster) == (1, 1)


async def test_a_clock_that_was_ahead_delays_fewer_replicas_by_one_window():
    cluster, load = await followed(work=3.6)
    await sample(cluster)
    load.work = 0.1
    await sample(cluster)
    body = cluster.inference_deployment()
    (higher,) = body["status"]["scaling"]["higher"]
    higher["until"] = "2026-01-02T00:00:00Z"
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    await sample(cluster)
    await sample(cluster, 270, every=90)
    assert replicas(cluster) == (4, 4)
    await sample(cluster, 60)
    assert replicas(cluster) == (1, 1)


async def test_a_lost_status_restarts_the_window_with_the_present_replicas():
    cluster, load = await followed(work=3.6)
    await sample(cluster)
    load.work = 0.1
    await sample(cluster, 285, every=57)
    body = cluster.inference_deployment()
    del body["status"]
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    await sample(cluster, 2 * INTERVAL)
    await sample(cluster, 285, every=57)
    assert replicas(cluster) == (4, 4)
    await sample(cluster, 60)
    assert replicas(cluster) == (1, 1)


async def test_spec_replicas_wins_and_the_number_is_only_reported():
    cluster, _ = await followed(replicas=2, work=3.6)
    await sample(cluster, 60)
    assert replicas(cluster) == (2, 2)
    assert cluster.status()["scaling"]["wantedReplicas"] == 4
    assert active(cluster) == ("True", "ReplicasGiven")
    assert cluster.message("ScalingActive").endswith("but spec.replicas sets the number")


async def test_a_long_idle_object_scales_to_zero_and_a_queue_brings_a_replica_back():
    cluster, load = await followed(work=3.6, scaleToZero=with_zero())
    load.queued = 0.0
    await sample(cluster)
    load.work = 0.0
    await sample(cluster, 600, every=60)
    assert replicas(cluster) == (1, 1)
    await sample(cluster, 390, every=30)
    assert replicas(cluster) == (0, 0)
    assert cluster.conditions()["Ready"] == ("True", "ScaledToZero")
    assert "spec.scaling.scaleToZero" in cluster.message("Placed")
    load.queued = 3.0
    await sample(cluster)
    assert replicas(cluster) == (1, 1)


async def test_an_object_with_short_requests_only_does_not_scale_to_zero():
    cluster, load = await followed(work=0.0, scaleToZero=with_zero())
    load.queued, load.short = 0.0, 0.01
    await sample(cluster, 1800, every=60)
    assert replicas(cluster) == (1, 1)
    load.short = 0.0
    await sample(cluster, 960, every=60)
    assert replicas(cluster) == (0, 0)


async def test_without_a_sample_of_the_queue_no_replica_is_removed_or_brought_back():
    cluster, load = await followed(work=0.0, scaleToZero=with_zero())
    await sample(cluster, 1800, every=200)
    assert replicas(cluster) == (1, 1)
    load.queued = 0.0
    await sample(cluster, 960, every=60)
    assert replicas(cluster) == (0, 0)
    load.queued = None
    await sample(cluster, 60)
    assert replicas(cluster) == (0, 0)
    assert active(cluster) == ("False", "NoOpinion")


async def test_a_loaded_object_keeps_a_replica_on_a_pool_that_is_a_hundred_times_as_fast():
    cluster = Cluster({"name": "l4", "accelerator": "l4", "gpusPerNode": 1})
    load = ReplicaLoad(cluster, work=0.4, queued=0.0)
    scaling = {"targets": {"waitingRequests": 1}, "scaleToZero": with_zero()}
    workload = {"concurrency": 1, "inputTokens": 2000, "outputTokens": 4000, "maxModelLen": 32768}
    spec = spec_of(
        replicas=None, scaling=scaling, workload=workload, placement={"fallback": {"after": "1m"}}
    )
    cluster.apply("llama", spec)
    await cluster.settle()
    each = cluster.status()["scaling"]["replica"]["tokensPerSecond"]
    load.answers = False
    cluster.leave("l4")
    cluster.join(name="b300", accelerator="b300-288gb")
    await sample(cluster, 120)
    assert cluster.deployments() == ["llama-b300-288gb"]
    assert replicas(cluster) == (1, 1)
    assert cluster.status()["scaling"]["replica"]["tokensPerSecond"] > 100 * each


async def test_a_budget_bounds_what_the_load_may_ask_for():
    cluster, _ = await followed({**MI300X, "count": 2}, placement={"maxCostPerHour": "7"}, work=5.5)
    await sample(cluster, 60)
    wanted, ready = replicas(cluster)
    assert 1 < wanted == ready < 6
    assert cluster.conditions()["Placed"] == ("True", "PoolChosen")


async def test_a_change_of_the_workload_alone_changes_no_number_that_was_measured():
    cluster, _ = await followed(work=3.6)
    await sample(cluster)
    spec = cluster.inference_deployment()["spec"]
    spec["workload"] |= {"concurrency": 900, "inputTokens": 6000, "outputTokens": 100}
    cluster.apply("llama", spec)
    await cluster.settle()
    assert replicas(cluster) == (4, 4)


async def test_the_load_is_followed_also_after_a_rollback():
    cluster, load = await followed()
    cluster.clock.advance(3600)  # pods differ by their creationTimestamp
    spec = cluster.inference_deployment()["spec"]
    spec["engine"] = {"vllm": {"image": "registry.local/vllm:bad"}}
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if "bad" in str(pod["spec"]["containers"]) else ready(pod)
    )
    cluster.apply("llama", spec)
    await cluster.settle()
    await cluster.wait(3600)
    assert cluster.conditions()["Degraded"] == ("True", "RolledBack")
    for work, want in ((3.6, 4), (0.1, 1)):
        load.work = work
        await sample(cluster, 360, every=30)
        assert replicas(cluster) == (want, want)
        assert cluster.conditions()["Degraded"] == ("True", "RolledBack")


async def test_a_rollback_from_another_pool_keeps_the_previous_number():
    cluster, load = await followed(MI300X, {**L40S, "count": 6}, maxReplicas=40)
    cluster.clock.advance(3600)
    spec = cluster.inference_deployment()["spec"]
    home, away = "mi300x", "l40s"
    if cluster.deployments() == ["llama-l40s"]:
        home, away = away, home
    load.work = 3.6
    await sample(cluster)
    spec |= {"engine": {"vllm": {"image": "registry.local/vllm:bad"}}}
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if "bad" in str(pod["spec"]["containers"]) else ready(pod)
    )
    cluster.apply("llama", {**spec, "placement": {"accelerators": [away]}})
    await cluster.settle()
    await cluster.wait(3600)
    await sample(cluster)
    assert cluster.deployments() == [f"llama-{home}"]
    scaling = cluster.status()["scaling"]
    assert (scaling["placement"], scaling["wantedReplicas"]) == (home, 4)


async def test_the_load_is_followed_while_another_plan_waits_for_approval():
    cluster, load = await followed(approval="Manual")
    approve(cluster)
    await cluster.settle()
    spec = cluster.inference_deployment()["spec"]
    spec["engine"] = {"vllm": {"image": "registry.local/vllm:other"}}
    cluster.apply("llama", spec)
    await cluster.settle()
    assert cluster.conditions()["Placed"] == ("False", "AwaitingApproval")
    load.work = 3.6
    await sample(cluster)
    assert replicas(cluster)[1] == 4


async def test_a_reader_that_does_not_sample_repeats_the_last_report_of_the_load():
    cluster, load = await followed(work=3.6)
    await sample(cluster)
    load.work = 0.1
    await sample(cluster)
    observation = await observe(replace(cluster.sources, measure_load=None), LLAMA)
    by_load = follow_load(observation, INTERVAL, cluster.clock.now())
    assert by_load.demanded.replicas == 4
    assert scaling_status(by_load, None).to_dict() == cluster.status()["scaling"]


async def test_a_terminating_replica_ends_its_requests_and_counts_no_more():
    cluster, load = await followed(work=3.6)
    await sample(cluster)
    measured = LoadSample(await load.measure(load.asked[-1]))
    observation = await observe(replace(cluster.sources, measure_load=None), LLAMA)
    pods = observation.pods
    terminating = [replace(pod, deleting=number < 3) for number, pod in enumerate(pods)]
    by_load = [
        follow_load(
            replace(observation, load=measured, pods=tuple(each)), INTERVAL, cluster.clock.now()
        )
        for each in (pods, terminating)
    ]
    in_flight = [one.opinion.in_flight for one in by_load]
    assert in_flight == [pytest.approx(in_flight[0]), pytest.approx(in_flight[0] / 4)]


async def test_a_step_is_an_event():
    cluster, load = await followed()
    load.work = 3.6
    await sample(cluster)
    assert cluster.recorder.events.count(("Scaling", "LoadMeasured")) == 1
    note = cluster.recorder.notes[cluster.recorder.events.index(("Scaling", "LoadMeasured"))]
    assert re.match(r"from 1 to 4 replicas: [0-9.]+ requests in flight", note)


async def test_more_load_takes_the_cheapest_pool_with_capacity_and_less_frees_the_dearest():
    dear = {"name": "h100", "accelerator": "h100-sxm-80gb", "gpusPerNode": 3}
    small = {**SMALL, "gpusPerNode": 2}
    cluster, load = await followed(
        small, dear, placement={"spread": {"policy": "WhenShort"}}, work=0.4
    )
    assert pools(cluster) == {"amd-mi300x": 1}
    load.work = 3.0
    await sample(cluster, 300, every=60)
    spread = pools(cluster)
    assert spread["amd-mi300x"] == 2
    assert spread["nvidia-h100-sxm-80gb"] >= 1
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    kept = {
        pod["metadata"]["name"] for pod in cluster.pods() if "mi300x" in pod["metadata"]["name"]
    }
    load.work = 1.2
    await sample(cluster, 1200, every=200)
    assert pools(cluster) == {"amd-mi300x": 2}
    assert {pod["metadata"]["name"] for pod in cluster.pods()} == kept


def pools(cluster):
    """Replicas by pool."""
    return {one["pool"]: one["replicas"] for one in cluster.status()["placements"]}


async def test_while_spread_status_reports_the_worth_of_a_replica_of_each_placement():
    cluster, load = await followed(
        {**SMALL, "gpusPerNode": 2}, H100, placement={"spread": {"policy": "ByCost"}}
    )
    assert "beside" not in cluster.status()["scaling"]
    load.work = 3.0
    await sample(cluster, 300, every=60)
    scaling = cluster.status()["scaling"]
    (secondary,) = scaling["beside"]
    assert secondary["placement"] == "h100-sxm-80gb"
    worth = secondary["replica"]["tokensPerSecond"] / scaling["replica"]["tokensPerSecond"]
    assert worth == pytest.approx(1.11, abs=0.01)
    weights = {one["pool"]: one["weight"] for one in cluster.status()["placements"]}
    assert weights == {"amd-mi300x": 47, "nvidia-h100-sxm-80gb": 53}, "two of each"
    load.work = 0.4
    await sample(cluster, 1200, every=200)
    assert pools(cluster) == {"amd-mi300x": 1}
    assert "beside" not in cluster.status()["scaling"]
