"""A checkpoint is downloaded once, before its pods are made, and all replicas load one commit."""

import pytest

from tests.support.in_memory.cluster import MI300X, NAMESPACE, Cluster, spec_of, write_count
from tests.support.in_memory.jobs import download_fails, downloaded, downloading
from tests.support.in_memory.serving import SETTLED
from tests.support.in_memory.weights import (
    CLAIM,
    COMMIT,
    NEWER,
    cached_spec,
    jobs,
    model_claim,
    on_hub,
    read_from_hub,
)
from tests.support.production.claims import volume_in_zone
from tests.support.production.webhooks import Webhook
from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.api.names import ANNOTATION_MODEL_COMMIT
from tonnage.checkpoint.lookup import ModelUnavailable
from tonnage.kube.kinds import (
    DEPLOYMENTS,
    JOBS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import Object, TransientError
from tonnage.workloads.weights_job import POD_NAME

DOWN = ModelUnavailable(Reason.MODEL_SOURCE_UNREACHABLE, "the Hub does not answer", 30.0)
DAY = 86400


def fail_downloads(cluster: Cluster, message: str, exit_code: int = 1) -> None:
    cluster.behaviours[POD_NAME] = lambda pod: download_fails(message, exit_code)


def path_of(deployment: Object) -> str:
    path: str = deployment["spec"]["template"]["spec"]["containers"][0]["args"][0]
    return path


async def begun() -> Cluster:
    """The download is under way."""
    cluster = on_hub(MI300X)
    cluster.behaviours[POD_NAME] = downloading
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    return cluster


async def served() -> Cluster:
    """The replica serves from the cache."""
    cluster = on_hub(MI300X)
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    return cluster


async def test_no_workload_is_made_and_no_gpu_is_held_before_the_download_ends() -> None:
    cluster = await begun()
    assert cluster.deployments() == []
    assert cluster.conditions()["Placed"] == ("True", "PoolChosen")
    assert cluster.conditions()["Ready"] == ("False", "DownloadingWeights")
    assert cluster.conditions()["Reconciling"] == ("True", "DownloadingWeights")
    (job,) = jobs(cluster)
    since = job["metadata"]["creationTimestamp"]
    assert cluster.message("Ready") == (
        f"downloading 16.0 GiB of acme/llama at commit {COMMIT[:12]} to PersistentVolumeClaim"
        f" models since {since} (Job {job['metadata']['name']})"
    )
    cluster.apply("other", spec_of(replicas=8))
    await cluster.settle()
    assert cluster.conditions("other")["Ready"] == ("True", "ReplicasReady")


async def test_the_replica_loads_the_commit_from_the_claim_and_asks_no_hub() -> None:
    cluster = await served()
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    assert path_of(deployment) == f"/models/acme--llama/{COMMIT}"
    pod = deployment["spec"]["template"]["spec"]
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in pod["containers"][0]["env"]
    (job,) = jobs(cluster)
    downloads = job["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "FOLDER", "value": path_of(deployment)} in downloads
    (volume,) = (each for each in pod["volumes"] if each["name"] == "model")
    assert volume["persistentVolumeClaim"] == {"claimName": CLAIM, "readOnly": True}


async def test_the_pods_of_the_job_are_not_among_those_that_serve() -> None:
    cluster = await begun()
    (pod,) = cluster.api.objects(PODS)
    service = cluster.api.object(SERVICES, NAMESPACE, "llama")
    assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert cluster.status()["replicas"] == 0


async def test_nothing_is_written_while_nothing_changes() -> None:
    cluster = await begun()
    writes = cluster.api.write_count
    await cluster.wait(300)
    await cluster.resync()
    assert cluster.api.write_count == writes


async def test_the_message_has_how_much_is_downloaded_and_the_remaining_time() -> None:
    cluster = await begun()
    before = cluster.message("Ready")
    (pod,) = cluster.api.objects(PODS)
    line = f"progress: {4 * 2**30} of {16 * 2**30} bytes, {2 * 2**30} of them in 60 s"
    cluster.api.set_log(NAMESPACE, pod["metadata"]["name"], "download", f"{line}\n")
    await cluster.wait(delays.REQUEUE_UNWATCHED)
    assert cluster.message("Ready") == f"{before}: 4.0 of 16.0 GiB are there, about 6m0s left"
    writes = cluster.api.write_count
    await cluster.resync()
    assert cluster.api.write_count == writes


async def test_only_the_container_that_downloads_counts() -> None:
    """The kubelet sorts containers by name, and a webhook may have added one before it."""
    cluster = await begun()
    (pod,) = cluster.api.objects(PODS)
    refused = {"waiting": {"reason": "CreateContainerConfigError", "message": "of a proxy"}}
    status = downloading(pod)
    status["containerStatuses"].insert(0, {"name": "a-proxy", "state": refused})
    cluster.behaviours[POD_NAME] = lambda _: status
    cluster.api.set_status(PODS, NAMESPACE, pod["metadata"]["name"], status)
    await cluster.wait(delays.REQUEUE_UNWATCHED)
    assert cluster.conditions()["Ready"] == ("False", "DownloadingWeights")


async def test_a_finished_job_that_expires_is_not_made_again() -> None:
    cluster = await served()
    await cluster.wait(DAY + 1)
    assert jobs(cluster) == []
    await cluster.resync()
    assert jobs(cluster) == []
    assert cluster.conditions() == SETTLED


async def test_more_replicas_need_no_second_download() -> None:
    cluster = await served()
    await cluster.wait(DAY + 1)
    cluster.apply("llama", cached_spec(replicas=3))
    await cluster.settle()
    assert len(cluster.pods()) == 3
    assert jobs(cluster) == []


async def test_a_restart_of_the_operator_during_the_download_begins_no_other() -> None:
    cluster = await begun()
    (before,) = jobs(cluster)
    cluster.hub.answer = read_from_hub(NEWER)
    cluster.start_operator()
    await cluster.settle()
    (after,) = jobs(cluster)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.parametrize("kept", [True, False], ids=["facts kept", "facts too large"])
async def test_a_branch_that_moves_is_reported_and_changes_nothing(kept: bool) -> None:
    cluster = on_hub(MI300X)
    first = read_from_hub()
    cluster.hub.answer = first if kept else first.with_kept_facts(None)
    cluster.hub.commits[COMMIT] = cluster.hub.answer
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    writes = write_count(cluster.api)
    cluster.hub.answer = read_from_hub(NEWER)
    await cluster.resync()
    await cluster.wait(DAY)
    assert write_count(cluster.api) == writes
    assert cluster.conditions() == SETTLED
    assert cluster.status()["model"]["revision"] == COMMIT
    update = cluster.status()["availableUpdate"]
    assert update["message"] == f"commit of main from {COMMIT} to {NEWER}"


async def test_a_service_that_is_deleted_takes_no_commit_with_it() -> None:
    cluster = await served()
    before = jobs(cluster)
    cluster.hub.answer = read_from_hub(NEWER)
    cluster.hub.commits[COMMIT] = read_from_hub()
    await cluster.resync()
    cluster.api.remove(SERVICES, NAMESPACE, "llama")
    await cluster.settle()
    service = cluster.api.object(SERVICES, NAMESPACE, "llama")
    assert COMMIT in service["metadata"]["annotations"][ANNOTATION_MODEL_COMMIT]
    assert jobs(cluster) == before
    assert cluster.status()["model"]["revision"] == COMMIT
    assert NEWER in cluster.status()["availableUpdate"]["message"]


async def test_a_new_revision_counts_also_while_the_service_is_deleted() -> None:
    cluster = await served()
    cluster.hub.answer = read_from_hub(NEWER, "v2")
    cluster.api.remove(SERVICES, NAMESPACE, "llama")
    cluster.apply("llama", cached_spec("v2"))
    await cluster.settle()
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    assert path_of(deployment) == f"/models/acme--llama/{NEWER}"


async def test_a_change_of_the_spec_keeps_the_commit() -> None:
    cluster = await served()
    cluster.hub.answer = read_from_hub(NEWER)
    cluster.apply("llama", cached_spec(engine={"vllm": {"maxNumSeqs": 77}}))
    await cluster.settle()
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    assert path_of(deployment) == f"/models/acme--llama/{COMMIT}"


async def test_an_upgrade_downloads_the_newest_commit_while_the_old_one_serves() -> None:
    cluster = await served()
    cluster.hub.answer = read_from_hub(NEWER)
    await cluster.resync()
    cluster.behaviours[POD_NAME] = downloading
    upgraded = cached_spec(rollout={"upgradedAt": "2026-11-27T12:00:00Z"})
    cluster.apply("llama", upgraded)
    await cluster.settle()
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    assert path_of(deployment) == f"/models/acme--llama/{COMMIT}"
    assert cluster.conditions()["Available"] == ("True", "ReplicasReady")
    assert cluster.conditions()["Ready"] == ("False", "DownloadingWeights")
    cluster.behaviours[POD_NAME] = downloaded
    await cluster.settle()
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    assert path_of(deployment) == f"/models/acme--llama/{NEWER}"
    assert cluster.conditions() == SETTLED
    assert "availableUpdate" not in cluster.status()
    assert len(jobs(cluster)) == 1


async def test_a_hub_that_is_down_after_a_restart_stops_nothing() -> None:
    cluster = await served()
    cluster.hub.answer = DOWN
    cluster.hub.commits[COMMIT] = DOWN
    cluster.start_operator()
    await cluster.settle()
    assert cluster.conditions() == SETTLED | {"Accepted": ("True", "ModelNotConfirmed")}
    cluster.apply("llama", cached_spec(replicas=2))
    await cluster.settle()
    assert len(cluster.pods()) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"commit": "../.."}', '{"commit": 5}'])
async def test_an_edited_annotation_costs_a_lookup_and_no_crash(text: str) -> None:
    cluster = await served()
    service = cluster.api.object(SERVICES, NAMESPACE, "llama")
    service["metadata"]["annotations"][ANNOTATION_MODEL_COMMIT] = text
    cluster.api.put(SERVICES, service)
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    service = cluster.api.object(SERVICES, NAMESPACE, "llama")
    assert COMMIT in service["metadata"]["annotations"][ANNOTATION_MODEL_COMMIT]


async def test_without_a_cache_the_job_goes_and_the_pods_load_from_the_hub() -> None:
    cluster = await served()
    spec = cached_spec()
    del spec["model"]["cache"]
    cluster.apply("llama", spec)
    await cluster.settle()
    assert jobs(cluster) == []
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    assert path_of(deployment) == "acme/llama"
    service = cluster.api.object(SERVICES, NAMESPACE, "llama")
    assert ANNOTATION_MODEL_COMMIT not in service["metadata"]["annotations"]


async def test_a_cache_for_what_runs_is_filled_before_the_pods_are_replaced() -> None:
    cluster = on_hub(MI300X)
    spec = cached_spec()
    del spec["model"]["cache"]
    cluster.apply("llama", spec)
    await cluster.settle()
    cluster.behaviours[POD_NAME] = downloading
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    assert path_of(deployment) == "acme/llama"
    assert cluster.conditions()["Available"] == ("True", "ReplicasReady")
    cluster.behaviours[POD_NAME] = downloaded
    await cluster.settle()
    assert cluster.conditions() == SETTLED


def from_image(reference: str, **spec: object) -> Object:
    image = {"reference": reference}
    applied = cached_spec(**spec)
    applied["model"]["cache"] = {"image": image}
    return applied


async def test_an_image_with_the_files_needs_no_job_and_no_claim() -> None:
    cluster = on_hub(MI300X)
    cluster.withdraw(model_claim())
    cluster.apply("llama", from_image("models/llama:v1"))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert jobs(cluster) == []
    (deployment,) = cluster.api.objects(DEPLOYMENTS)
    assert path_of(deployment) == "/models"
    service = cluster.api.object(SERVICES, NAMESPACE, "llama")
    assert ANNOTATION_MODEL_COMMIT not in service["metadata"]["annotations"]


async def test_another_image_is_another_plan_to_approve() -> None:
    cluster = on_hub(MI300X)
    cluster.apply("llama", from_image("models/llama:v1"))
    await cluster.settle()
    cluster.apply("llama", from_image("models/llama:v2", approval="Manual"))
    await cluster.settle()
    proposed = cluster.status()["proposedPlan"]
    assert "volume from models/llama:v1 to models/llama:v2" in proposed["message"]
    assert cluster.conditions()["Ready"] == ("False", "AwaitingApproval")


async def test_a_job_goes_with_its_object() -> None:
    cluster = await begun()
    cluster.delete("llama")
    await cluster.settle()
    assert jobs(cluster) == []


async def test_a_refusal_of_the_hub_is_reported_and_tried_again_later() -> None:
    cluster = on_hub(MI300X)
    fail_downloads(cluster, "https://hub refused the token (401)", exit_code=3)
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "WeightsNotDownloaded")
    assert cluster.conditions()["Stalled"] == ("True", "WeightsNotDownloaded")
    assert "refused the token (401); another Job is made at" in cluster.message("Ready")
    (first,) = jobs(cluster)
    assert first["status"]["failed"] == 1
    await cluster.wait(delays.DOWNLOAD_RETRY - 5)
    (same,) = jobs(cluster)
    assert same["metadata"]["uid"] == first["metadata"]["uid"]
    cluster.behaviours[POD_NAME] = downloaded
    await cluster.wait(10)
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize("failed", [True, False])
async def test_a_job_that_waits_for_a_finalizer_is_named_and_awaited(failed: bool) -> None:
    cluster = on_hub(MI300X)
    fail_downloads(cluster, "https://hub refused the token (401)", exit_code=3)
    if not failed:
        cluster.behaviours[POD_NAME] = downloading
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    (job,) = jobs(cluster)
    job["metadata"] |= {"deletionTimestamp": "2026-11-27T12:00:00Z", "finalizers": ["acme.com/x"]}
    cluster.api.put(JOBS, job)
    await cluster.wait(delays.DOWNLOAD_RETRY + 10)
    reconciles, writes = len(cluster.reconciled), cluster.api.write_count
    await cluster.wait(delays.REQUEUE_UNWATCHED + 1)
    assert len(cluster.reconciled) == reconciles + 1
    assert cluster.api.write_count == writes
    assert ("Stalled" in cluster.conditions()) is failed
    assert cluster.message("Ready") == (
        f"Job {job['metadata']['name']} is being deleted and waits for its finalizers"
        " (acme.com/x); another Job is made then"
    )
    cluster.behaviours[POD_NAME] = downloaded
    (ending,) = jobs(cluster)
    del ending["metadata"]["finalizers"]
    cluster.api.put(JOBS, ending)
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_pods_that_the_api_server_refuses_are_named_with_the_cause() -> None:
    """No condition of the Job says it, and its deadline comes after hours."""
    cluster = on_hub(MI300X)
    denied = "containers need limits"
    refusing = Webhook((PODS,), message=denied, only=is_of_download)
    cluster.webhooks.append(refusing)
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    await cluster.wait(delays.REQUEUE_UNWATCHED)
    (job,) = jobs(cluster)
    assert cluster.conditions()["Ready"] == ("False", "WeightsNotDownloaded")
    assert cluster.message("Ready") == (
        f"Job {job['metadata']['name']}: its pods are refused: admission webhook"
        f' "policy.example.com" denied the request: {denied}; the Job goes on trying'
    )
    cluster.webhooks.remove(refusing)
    await cluster.settle()
    assert cluster.conditions() == SETTLED


def is_of_download(pod: Object) -> bool:
    return bool(pod["metadata"]["labels"].get("app.kubernetes.io/name") == POD_NAME)


async def test_a_suspended_job_is_named() -> None:
    cluster = await begun()
    (job,) = jobs(cluster)
    (pod,) = cluster.api.objects(PODS)
    cluster.api.remove(PODS, NAMESPACE, pod["metadata"]["name"])
    cluster.api.put(JOBS, {**job, "spec": {**job["spec"], "suspend": True}})
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "WeightsNotDownloaded")
    assert cluster.message("Ready") == (
        f"Job {job['metadata']['name']}: it is suspended (spec.suspend), as Kueue suspends Jobs"
        " until there is quota"
    )
    cluster.behaviours[POD_NAME] = downloaded
    (job,) = jobs(cluster)
    cluster.api.put(JOBS, {**job, "spec": {**job["spec"], "suspend": False}})
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_a_container_that_never_ends_keeps_no_replica_from_its_start() -> None:
    """A webhook has added it to the pod that downloads."""
    cluster = await begun()
    (pod,) = cluster.api.objects(PODS)
    status = downloaded(pod) | {"phase": "Running"}
    status["containerStatuses"].append({"name": "proxy", "state": {"running": {"startedAt": "x"}}})
    cluster.behaviours[POD_NAME] = lambda _: status
    cluster.api.set_status(PODS, NAMESPACE, pod["metadata"]["name"], status)
    await cluster.wait(delays.REQUEUE_UNWATCHED)
    assert cluster.conditions() == SETTLED
    assert jobs(cluster) == [], "its pod would keep a volume on its node, and the Job open"
    writes = cluster.api.write_count
    await cluster.wait(3600)
    assert cluster.api.write_count == writes


async def test_pods_of_a_job_that_cannot_be_listed_hide_only_their_words() -> None:
    cluster = await begun()
    cluster.api.fail_next("list", TransientError("timed out"), kind=PODS, times=100)
    cluster.apply("llama", cached_spec(replicas=2))
    await cluster.settle()
    assert cluster.errors == []
    assert cluster.status()["observedGeneration"] == 2
    assert cluster.conditions()["Ready"] == ("False", "DownloadingWeights")


async def test_a_claim_that_cannot_be_read_is_named_and_no_job_is_made() -> None:
    volume = volume_in_zone("disk", CLAIM, "a")
    anywhere = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
    volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [anywhere]}}
    cluster = on_hub(MI300X, claim=model_claim(volumeName="disk"))
    cluster.api.put(PERSISTENT_VOLUMES, volume)
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    cluster.hub.answer = read_from_hub(NEWER)
    lost = TransientError("timed out")
    cluster.api.fail_next("get", lost, kind=PERSISTENT_VOLUME_CLAIMS, times=100)
    cluster.apply("llama", cached_spec(replicas=2, rollout={"upgradedAt": "2026-11-27T12:00:00Z"}))
    await cluster.settle()
    assert cluster.errors == []
    assert jobs(cluster) == []
    assert cluster.status()["readyReplicas"] == 2
    unread = "PersistentVolumeClaim chat/models could not be read: timed out"
    assert cluster.message("Ready") == unread
    cluster.api.clear_faults()
    await cluster.wait(delays.REQUEUE_UNWATCHED)
    assert cluster.conditions() == SETTLED


async def test_a_failure_that_may_pass_is_tried_again_by_the_job() -> None:
    cluster = on_hub(MI300X)
    fail_downloads(cluster, "https://hub limits the rate of requests (429)")
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    (job,) = jobs(cluster)
    assert job["status"]["failed"] == 7
    assert "limits the rate of requests (429)" in cluster.message("Ready")


@pytest.mark.parametrize(
    ("message", "want"),
    [("a\nb\x00\x1b[31m", "a b[31m"), ("x" * 5000, "x" * 300), ("", "exit code 3")],
)
async def test_words_of_a_pod_are_one_short_line(message: str, want: str) -> None:
    cluster = on_hub(MI300X)
    fail_downloads(cluster, message, exit_code=3)
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    assert f"{want}; another Job" in cluster.message("Ready")
    assert len(cluster.message("Ready")) < 500


@pytest.mark.parametrize(
    ("claim", "want"),
    [
        (None, "not found; create it"),
        (model_claim("8Gi"), "has 8.0 GiB, and the weights take 16.0 GiB"),
        (model_claim(phase="Lost"), "has lost its volume"),
        (model_claim(volumeMode="Block"), "has volumeMode Block; expected Filesystem"),
        (model_claim(accessModes=["ReadOnlyMany"]), "has accessModes ReadOnlyMany"),
    ],
)
async def test_a_claim_that_cannot_take_the_files_is_named_before_anything_is_made(
    claim: Object | None, want: str
) -> None:
    cluster = on_hub(MI300X, claim=claim)
    if claim is None:
        cluster.withdraw(model_claim())
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("False", "WeightsNotDownloaded")
    assert f"PersistentVolumeClaim chat/models {want}" in cluster.message("Ready")
    assert jobs(cluster) == []
    assert cluster.api.objects(SERVICES) == []
    cluster.administer(model_claim())
    await cluster.wait(delays.REQUEUE_UNWATCHED)
    assert cluster.conditions() == SETTLED


async def test_a_claim_without_a_volume_is_named_by_the_scheduler() -> None:
    cluster = on_hub(MI300X, claim=model_claim(phase="Pending"))
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    await cluster.wait(delays.REQUEUE_UNWATCHED)
    assert cluster.conditions()["Ready"] == ("False", "WeightsNotDownloaded")
    assert "unbound immediate PersistentVolumeClaims" in cluster.message("Ready")


async def test_a_job_of_others_is_left_alone() -> None:
    cluster = await begun()
    (job,) = jobs(cluster)
    cluster.delete("llama")
    await cluster.settle()
    foreign = {**job, "metadata": {"name": job["metadata"]["name"], "namespace": NAMESPACE}}
    foreign["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    foreign["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    cluster.api.put(JOBS, foreign)
    cluster.apply("llama", cached_spec())
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "NameConflict")
    assert len(jobs(cluster)) == 1
