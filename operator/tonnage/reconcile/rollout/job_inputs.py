"""Find Jobs that wait for an image or a token that is not wanted any more. Pure.

The template of a Job is immutable, and its pods wait for an image or a Secret that does not exist
until its deadline. So a Job that has not finished is deleted when these change, and the next one
is made once it is gone: it has the same name, and its program waits for a program that still ends
and continues what is there.

The Job has a digest of its inputs, since an admission webhook may rewrite the image. A Job for
another pool or engine goes on: while nothing runs yet, the choice follows the free GPUs.
"""

import json
from typing import Any

from tonnage.api.names import ANNOTATION_JOB_INPUTS
from tonnage.api.text import digest, read_json_object
from tonnage.engines.replica import Replica
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import with_annotations
from tonnage.reconcile.observation.optional.download_jobs import DownloadJob


def with_inputs(job: Object, replica: Replica) -> Object:
    """A rendered Job with the annotation that `has_other_inputs` compares."""
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    token = [variable for variable in container["env"] if variable["name"] == "HF_TOKEN"]
    values = {
        "pool": replica.option.pool.name,
        "engine": replica.option.engine,
        "digest": digest([container["image"], pod.get("imagePullSecrets"), token]),
    }
    text = json.dumps(values, separators=(",", ":"))
    return with_annotations(job, {ANNOTATION_JOB_INPUTS: text})


def has_other_inputs(live: DownloadJob, wanted: Object) -> bool:
    """Whether a Job that has not finished has another image or token than the one that is wanted
    for the same pool and engine. False where the Job does not say, as those of older operators."""
    if live.is_complete or live.failed is not None:
        return False
    own, other = _read_inputs(live.child.body), _read_inputs(wanted)
    return {**own, "digest": None} == {**other, "digest": None} and own["digest"] != other["digest"]


def _read_inputs(job: Object) -> dict[str, Any]:
    text = (job["metadata"].get("annotations") or {}).get(ANNOTATION_JOB_INPUTS, "")
    read = read_json_object(text) or {}
    return {name: read.get(name) for name in ("pool", "engine", "digest")}
