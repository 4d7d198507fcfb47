"""ResourceQuotas, LimitRanges and Pod Security Standards of a namespace, by the real API server and
the real quota controller."""

from __future__ import annotations

from typing import Any, Final

from e2e.harness.admin import Admin
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from tests.support.in_memory.cluster import H100, MI300X

FLEET: Final[Json] = {"groups": [H100, MI300X]}


def limit(admin: Admin, namespace: str, **gpus: int) -> None:
    """Allow so many GPUs by vendor, and await that the quota controller has counted."""
    hard = {f"requests.{vendor}.com/gpu": count for vendor, count in gpus.items()}
    metadata = {"name": "gpus", "namespace": namespace}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
    admin.apply({**quota, "spec": {"hard": hard}})

    def is_counted(body: Json) -> bool:
        counted = body.get("status", {}).get("hard") or {}
        return {key: int(value) for key, value in counted.items()} == hard

    admin.wait_for("resourcequotas", "gpus", is_counted, timeout=90)


def placed_on(status: Json) -> list[Any]:
    return [(each["accelerator"], each["replicas"]) for each in status["placements"]]


def test_what_a_quota_does_not_allow_is_placed_elsewhere_or_waits_for_the_quota(
    fleet: UseFleet, user: User, admin: Admin
) -> None:
    fleet(FLEET)
    limit(admin, user.namespace, nvidia=0, amd=1)
    user.apply(inference("llama", "llama-3.1-8b", replicas=1))
    status = user.wait_ready("llama")
    assert placed_on(status) == [("mi300x", 1)]
    verdicts = [(each["verdict"], each["reason"]) for each in status["candidates"]]
    assert verdicts[1:] == [("Rejected", "QuotaExceeded")]

    user.apply(inference("second", "llama-3.1-8b", replicas=1))
    status = user.wait("second", has("Placed", "False", "QuotaExceeded"))
    message = condition(status, "Placed")["message"]
    assert "ResourceQuota gpus leaves 0 of 0 nvidia.com/gpu" in message
    assert "ResourceQuota gpus leaves 0 of 1 amd.com/gpu" in message
    assert user.children("deployments", "second") == []

    limit(admin, user.namespace, nvidia=1, amd=1)
    assert placed_on(user.wait_ready("second")) == [(H100["accelerator"], 1)]
    limit(admin, user.namespace, nvidia=0, amd=0)
    user.await_quiet()
    assert all(has("Ready")(user.status(name)) for name in ("llama", "second"))


def limit_gpus_of_a_container(admin: Admin, namespace: str, **gpus: int) -> None:
    """Allow each container so many GPUs by vendor."""
    most = {f"{vendor}.com/gpu": str(count) for vendor, count in gpus.items()}
    admin.apply(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "gpus", "namespace": namespace},
            "spec": {"limits": [{"type": "Container", "max": most}]},
        }
    )


def test_a_pool_whose_pods_the_namespace_refuses_is_not_chosen(
    fleet: UseFleet, user: User, admin: Admin
) -> None:
    fleet(FLEET)
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    admin.patch("namespaces", user.namespace, {"metadata": {"labels": level}})
    user.apply(inference("llama", "llama-3.1-8b", replicas=1))
    status = user.wait_ready("llama")
    assert placed_on(status) == [(H100["accelerator"], 1)]
    (other,) = (each for each in status["candidates"] if each["verdict"] == "Rejected")
    assert other["reason"] == "PodSecurityViolated"
    assert "securityContext.runAsNonRoot" in other["message"]

    limit_gpus_of_a_container(admin, user.namespace, nvidia=0)
    user.apply(inference("second", "llama-3.1-8b", replicas=1))
    status = user.wait("second", has("Placed", "False", "LimitRangeViolated"))
    message = condition(status, "Placed")["message"]
    assert "LimitRange gpus: container vllm may use 1 nvidia.com/gpu" in message
    admin.until("no Deployment to be left", lambda: not user.children("deployments", "second"))

    admin.delete("limitranges", "gpus")
    assert placed_on(user.wait_ready("second")) == [(H100["accelerator"], 1)]
    assert has("Ready")(user.status("llama"))
