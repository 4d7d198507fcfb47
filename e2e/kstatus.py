"""The rules by which Flux, and all that uses kstatus, judge a custom resource.

Written from the description of sigs.k8s.io/cli-utils, pkg/kstatus: what it says of kinds
that it does not know. It is an oracle for tests, so it follows that text and nothing of ours.
"""

from __future__ import annotations

from enum import StrEnum

from e2e.harness.rest import Json


class Verdict(StrEnum):
    """What kstatus says of an object."""

    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    CURRENT = "Current"
    TERMINATING = "Terminating"


def judge(item: Json) -> Verdict:
    """Judge one version of an object, by the first rule that applies."""
    metadata, status = item["metadata"], item.get("status") or {}
    if "deletionTimestamp" in metadata:
        return Verdict.TERMINATING
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return Verdict.IN_PROGRESS
    for condition in status.get("conditions") or []:
        if condition["status"] == "True" and condition["type"] in _ABNORMAL:
            return _ABNORMAL[condition["type"]]
    for condition in status.get("conditions") or []:
        if condition["type"] == "Ready" and condition["status"] != "True":
            return Verdict.IN_PROGRESS
    return Verdict.CURRENT


_ABNORMAL = {"Reconciling": Verdict.IN_PROGRESS, "Stalled": Verdict.FAILED}
