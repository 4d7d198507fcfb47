"""A user of the cluster, who applies InferenceDeployments and reads their status."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from e2e.harness.admin import WAIT_SECONDS, WRITES, Admin
from e2e.harness.operator_process import USER
from e2e.harness.rest import Json

Predicate = Callable[[Json], object]


class User:
    """Works in one namespace and remembers what each object was when it was applied last."""

    def __init__(self, admin: Admin, namespace: str) -> None:
        self.admin = admin
        self.namespace = namespace
        self._applied: dict[str, Json] = {}

    def apply(self, manifest: Json) -> Json:
        """Apply an InferenceDeployment and remember what the API server stored."""
        (stored,) = self.admin.apply(manifest)
        self._applied[stored["metadata"]["name"]] = _users_part(stored)
        return stored

    def forget(self, name: str) -> None:
        """The object was deleted, or is changed by other means from here on."""
        self._applied.pop(name, None)

    def get(self, name: str) -> Json:
        """The object as it is now."""
        model = self.admin.get("infd", name)
        assert model is not None, f"InferenceDeployment {name} is gone"
        return model

    def status(self, name: str) -> Json:
        """Its status, empty before the first report."""
        status: Json = self.get(name).get("status") or {}
        return status

    def wait(
        self,
        name: str,
        predicate: Predicate,
        *,
        timeout: float = WAIT_SECONDS,
        why: str = "",
    ) -> Json:
        """Wait until the status is of the current spec and satisfies `predicate`; return it."""

        def holds(model: Json) -> bool:
            status = model.get("status") or {}
            current = status.get("observedGeneration") == model["metadata"]["generation"]
            return bool(current and predicate(status))

        model = self.admin.wait_for("infd", name, holds, timeout=timeout, why=why)
        status: Json = model["status"]
        return status

    def wait_ready(self, name: str, *, timeout: float = WAIT_SECONDS) -> Json:
        """Wait until the object is Ready and return its status."""
        return self.wait(name, has("Ready"), timeout=timeout, why=f"{name} to be Ready")

    def children(self, kind: str, name: str) -> list[Json]:
        """The Deployments, Services or pods of an object."""
        return self.admin.items(kind, selector=f"tonnage.dev/inferencedeployment={name}")

    def pods(self, name: str) -> set[str]:
        """The pods that are to stay; one that is on its way out may still be listed."""
        listed = [pod["metadata"] for pod in self.children("pods", name)]
        return {metadata["name"] for metadata in listed if "deletionTimestamp" not in metadata}

    def wait_pods(self, name: str, count: int) -> set[str]:
        """Wait until so many pods are to stay. Those of a Deployment that the operator has deleted
        are collected later than the status says so."""

        def probe() -> set[str] | None:
            pods = self.pods(name)
            return pods if len(pods) == count else None

        return self.admin.until(
            f"{name} to have {count} pods",
            probe,
            describe=lambda: self.admin.describe("infd", name),
        )

    def operator_writes(self, since: int) -> list[str]:
        """What the operator wrote since a mark of the audit log, but for its Lease."""
        return [_describe(event) for event in self._writes(since) if not _is_renewal(event)]

    def await_quiet(self) -> None:
        """Wait until the operator has said all it has to say: it renews its Lease twice, which it
        does every two seconds, without another write in between. On a busy machine its own clock
        goes slower, too."""
        mark = self.admin.audit_mark()

        def is_quiet() -> bool:
            nonlocal mark
            events = self._writes(mark)
            if not all(map(_is_renewal, events)):
                mark = self.admin.audit_mark()
                return False
            return len(events) >= 2

        self.admin.until("the operator to come to rest", is_quiet, timeout=2 * WAIT_SECONDS)

    def _writes(self, since: int) -> list[Json]:
        return self.admin.requests(USER, verbs=WRITES, since=since)

    def assert_untouched(self) -> None:
        """Spec, labels, annotations and finalizers are byte for byte what the user applied."""
        for name, before in self._applied.items():
            model = self.admin.get("infd", name)
            if model is not None:
                assert _users_part(model) == before, f"the operator changed {name}"


def has(kind: str, status: str = "True", reason: str | None = None) -> Predicate:
    """A predicate on a status: its condition has this status and, where given, this reason."""

    def holds(object_status: Json) -> bool:
        actual = condition(object_status, kind)
        return actual.get("status") == status and reason in (None, actual.get("reason"))

    return holds


def condition(status: Json, kind: str) -> Json:
    """A condition of a status, empty where there is none."""
    conditions = status.get("conditions") or []
    return next((entry for entry in conditions if entry["type"] == kind), {})


def candidate(status: Json, accelerator: str) -> Json:
    """What status says of the pool with this accelerator."""
    matches = [entry for entry in status["candidates"] if entry.get("accelerator") == accelerator]
    assert len(matches) == 1, f"{accelerator}: {len(matches)} candidates in {status['candidates']}"
    return dict(matches[0])


def verdict(status: Json, pool: str) -> Json:
    """What status says of the pool of this name."""
    (match,) = (entry for entry in status["candidates"] if entry["pool"] == pool)
    return dict(match)


def runs_on(pool: str) -> Predicate:
    """A predicate on a status: Ready, with all replicas on this pool and on no other."""

    def holds(status: Json) -> bool:
        pools = [placement["pool"] for placement in status.get("placements") or []]
        return bool(has("Ready")(status) and pools == [pool])

    return holds


def container(deployment: Json) -> Json:
    """The vLLM container of a Deployment."""
    (only_container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(only_container)


def argument(deployment: Json, flag: str) -> str:
    """The value of one of vLLM's flags."""
    (value,) = (
        given.removeprefix(f"{flag}=")
        for given in container(deployment)["args"]
        if given.startswith(f"{flag}=")
    )
    return str(value)


def _is_renewal(event: Json) -> bool:
    return bool(event["objectRef"]["resource"] == "leases")


def _describe(event: Json) -> str:
    return f"{event['verb']} {event['requestURI']}"


def _users_part(model: Json) -> Json:
    metadata = model["metadata"]
    kept: dict[str, Any] = {
        key: metadata.get(key) for key in ("labels", "annotations", "finalizers")
    }
    return deepcopy({"spec": model["spec"], **kept})
