"""The Job controller on the API in memory, and what the kubelet makes of the pods of a Job.

One pod at a time, without pauses between attempts. Source: Kubernetes
pkg/controller/job/job_controller.go and pkg/controller/ttlafterfinished.
"""

from datetime import datetime, timedelta

from tests.support.api_server.fake_api import FakeApi
from tests.support.in_memory.controllers import set_status
from tests.support.in_memory.rollouts import owner_reference
from tests.support.production.pod_faults import warning_event
from tonnage.kube.kinds import EVENTS, JOBS, PODS
from tonnage.kube.protocol import ForbiddenError, Object
from tonnage.reconcile.observation.findings import format_time
from tonnage.reconcile.observation.optional.download_jobs import JOB_OF_POD


def run_jobs(api: FakeApi) -> None:
    """One step of the controller for each Job."""
    for job in api.objects(JOBS):
        metadata, name = job["metadata"], job["metadata"]["name"]
        pods = [
            pod
            for pod in api.objects(PODS)
            if pod["metadata"].get("labels", {}).get(JOB_OF_POD) == name
            and pod["metadata"]["ownerReferences"][0]["uid"] == metadata["uid"]
        ]
        ended = _end_of(job)
        if ended is not None:
            ttl = timedelta(seconds=job["spec"]["ttlSecondsAfterFinished"])
            if api.now >= ended + ttl:
                api.remove(JOBS, metadata["namespace"], name)
            continue
        if job["spec"].get("suspend"):
            suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
            set_status(api, JOBS, job, {"conditions": [{**suspended, "message": "Job suspended"}]})
            continue
        _count(api, job, pods)


def download_fails(message: str, exit_code: int = 1) -> Object:
    """The status of a pod whose program has ended so."""
    end = {"exitCode": exit_code, "reason": "Error", "message": message}
    return {"phase": "Failed", "containerStatuses": [_container({"terminated": end})]}


def downloading(pod: Object) -> Object:
    """The program runs."""
    return {"phase": "Running", "containerStatuses": [_container({"running": {}})]}


def downloaded(pod: Object) -> Object:
    """The program has ended well."""
    end = {"exitCode": 0, "reason": "Completed"}
    return {"phase": "Succeeded", "containerStatuses": [_container({"terminated": end})]}


def _container(state: Object) -> Object:
    return {"name": "download", "ready": False, "restartCount": 0, "state": state}


def _count(api: FakeApi, job: Object, pods: list[Object]) -> None:
    by_phase = {
        phase: [pod for pod in pods if pod["status"].get("phase") == phase]
        for phase in ("Failed", "Succeeded")
    }
    failed, succeeded = by_phase["Failed"], by_phase["Succeeded"]
    condition: tuple[str, str, str] | None = None
    refused = next((pod for pod in failed if _exit_code(pod) in _fatal_codes(job)), None)
    if succeeded:
        condition = "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    elif refused is not None:
        message = f"Container download failed with exit code {_exit_code(refused)}"
        condition = "Failed", "PodFailurePolicy", message
    elif len(failed) > job["spec"]["backoffLimit"]:
        message = "Job has reached the specified backoff limit"
        condition = "Failed", "BackoffLimitExceeded", message
    elif len(pods) == len(failed):
        _create_pod(api, job, len(failed))
    kind, reason, message = condition or ("", "", "")
    entry = {"type": kind, "status": "True", "reason": reason, "message": message}
    conditions = [{**entry, "lastTransitionTime": format_time(api.now)}] if kind else []
    counts = {"failed": len(failed), "succeeded": len(succeeded)}
    status = {name: count for name, count in counts.items() if count}
    set_status(api, JOBS, job, {**status, **({"conditions": conditions} if conditions else {})})


def _create_pod(api: FakeApi, job: Object, number: int) -> None:
    metadata, template = job["metadata"], job["spec"]["template"]
    pod = {
        "metadata": {
            "name": f"{metadata['name']}-{metadata['uid'][-4:]}-{number:02}",
            "namespace": metadata["namespace"],
            "labels": {**template["metadata"]["labels"], JOB_OF_POD: metadata["name"]},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    }
    try:
        api.post(PODS, pod, manager="job-controller")
    except ForbiddenError as error:
        # No condition says it (pkg/controller/controller_utils.go, RealPodControl.createPods).
        note = f"Error creating: {error}"
        api.put(EVENTS, warning_event("Job", job, "FailedCreate", note, api.now))


def _end_of(job: Object) -> datetime | None:
    conditions = job.get("status", {}).get("conditions", [])
    ends = ("Complete", "Failed")
    times = [one["lastTransitionTime"] for one in conditions if one["type"] in ends]
    return datetime.fromisoformat(times[0]) if times else None


def _exit_code(pod: Object) -> int:
    code: int = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    return code


def _fatal_codes(job: Object) -> list[int]:
    rules = job["spec"]["podFailurePolicy"]["rules"]
    return [
        code
        for rule in rules
        if rule["action"] == "FailJob"
        for code in rule["onExitCodes"]["values"]
    ]
