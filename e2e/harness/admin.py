"""A cluster admin's client of one stack: apply, get, delete, and wait for a condition.

For tests and demonstrations. Every wait has a limit, and when it is over the error shows the last
state that was seen, since "timed out" alone explains nothing.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from e2e.harness.audit_log import AuditLog
from e2e.harness.failure import HarnessError
from e2e.harness.rest import Access, ApiError, Json, Rest

WAIT_SECONDS = 120.0
"""The limit of a wait for what takes seconds where no other control plane shares the cores."""

SLOW = 2 * WAIT_SECONDS
"""The same in tests of several programs, such as Argo CD, Prometheus or more than one operator."""

_MANAGER = "e2e-admin"
_POLL_INTERVAL = 0.1
_LONGEST_POLL_INTERVAL = 0.5
_POLL_FACTOR = 5
"""A pause is so many times as long as the probe: what is waited for needs the cores."""
_KUBECTL_SECONDS = 300
_SHOWN_BYTES = 6_000
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Resource:
    """Where the objects of one kind live in the API."""

    group_version: str
    plural: str
    kind: str
    namespaced: bool
    names: frozenset[str]  # all by which people call it: kind, plural, singular, short names

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, of one object, or of its subresource."""
        root = "api" if "/" not in self.group_version else "apis"
        parts = [root, self.group_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/" + "/".join([*parts, self.plural, *filter(None, (name, subresource))])


class Admin:
    """A client of one stack with an admin's rights. `namespace` is used where none is given."""

    def __init__(self, kubeconfig: Path, kubectl: Path, *, audit_log: Path | None = None) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = "default"
        self.rest = Rest(Access.load(kubeconfig))
        self._kubectl = kubectl
        # What another cluster served on the same port must not be taken for this one's.
        self._cache = f"--cache-dir={kubeconfig.parent / 'kubectl-cache'}"
        self._audit_log = None if audit_log is None else AuditLog(audit_log)
        self._resources: list[Resource] = []

    # What the API server knows

    def resource(self, kind: str, group_version: str | None = None) -> Resource:
        """Return the resource that `kind` names: Deployment, deployments, deploy, infd.

        One whose CRD was just made appears a moment later, so this waits half a minute for it.
        """
        deadline = time.monotonic() + 30
        while True:
            for resource in self._resources:
                if kind.lower() in resource.names and group_version in (
                    None,
                    resource.group_version,
                ):
                    return resource
            if time.monotonic() > deadline:
                wanted = f"{group_version}, {kind}" if group_version else kind
                raise HarnessError(
                    f"the API server has no resource {wanted!r}; is the CRD applied?"
                )
            if self._resources:
                time.sleep(_POLL_INTERVAL)
            self._resources = list(self._discover())

    def _discover(self) -> Iterator[Resource]:
        for root in ("/api", "/apis"):
            for group in self.rest.request("GET", root, accept=_DISCOVERY)["items"]:
                for version in group["versions"]:
                    yield from _resources_of(group["metadata"].get("name", ""), version)

    # Objects

    def apply(self, manifest: str | Path | Json | Iterable[Json]) -> list[Json]:
        """Apply YAML text, a file, one object or several, server-side; return what is stored.

        A CRD is waited for until its objects can be listed, so that they can follow.
        """
        return [self._apply_one(item) for item in _objects(manifest)]

    def _apply_one(self, item: Json) -> Json:
        resource = self.resource(item["kind"], item["apiVersion"])
        namespace = item["metadata"].get("namespace") or self.namespace
        path = resource.path(namespace, item["metadata"]["name"])
        query = {"fieldManager": _MANAGER, "force": "true"}
        stored = self.rest.request("PATCH", path, item, query=query, content_type=_APPLY)
        if item["kind"] == "CustomResourceDefinition":
            self.wait_for("crd", item["metadata"]["name"], condition("Established"))
            spec = item["spec"]
            for version in (one["name"] for one in spec["versions"] if one["served"]):
                kind = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
                self.until(f"{kind} to be served", partial(self.rest.serves, kind))
        return stored

    def get(self, kind: str, name: str, namespace: str | None = None) -> Json | None:
        """Return an object, None when there is none."""
        path = self.resource(kind).path(self._in(namespace), name)
        try:
            return self.rest.request("GET", path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def items(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        selector: str = "",
        everywhere: bool = False,
    ) -> list[Json]:
        """Return the objects of a kind in a namespace, or in all of them."""
        path = self.resource(kind).path("" if everywhere else self._in(namespace))
        query = {"labelSelector": selector} if selector else None
        items: list[Json] = self.rest.request("GET", path, query=query)["items"]
        return items

    def patch(
        self,
        kind: str,
        name: str,
        change: Json,
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> Json:
        """Merge a change into an object: a value of None takes the field away."""
        path = self.resource(kind).path(self._in(namespace), name, subresource)
        return self.rest.request("PATCH", path, change, content_type=_MERGE)

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        timeout: float | None = WAIT_SECONDS,
    ) -> None:
        """Delete an object and wait until it is gone; with `timeout=None` do not wait."""
        path = self.resource(kind).path(self._in(namespace), name)
        try:
            self.rest.request("DELETE", path, {"propagationPolicy": "Background"})
        except ApiError as error:
            if error.code != 404:
                raise
        if timeout is not None:
            self.wait_gone(kind, name, namespace, timeout=timeout)

    def logs(
        self, pod: str, namespace: str | None = None, *, container: str = "", **options: Any
    ) -> str:
        """Return a container's log; options are the API's: previous=True, tailLines=20, ..."""
        path = self.resource("pods").path(self._in(namespace), pod, "log")
        query = {key: json.dumps(value) for key, value in options.items()}
        if container:
            query["container"] = container
        return self.rest.raw("GET", path, query=query).decode("utf-8", "replace")

    def _in(self, namespace: str | None) -> str:
        return self.namespace if namespace is None else namespace

    @contextmanager
    def fresh_namespace(self, prefix: str = "test") -> Iterator[str]:
        """Make a namespace of a new name, work in it by default, and delete it afterwards."""
        body = {"metadata": {"generateName": f"{prefix}-"}}
        name = str(self.rest.request("POST", "/api/v1/namespaces", body)["metadata"]["name"])
        before, self.namespace = self.namespace, name
        try:
            self.wait_for("serviceaccounts", "default", lambda _: True)
            yield name
        finally:
            self.namespace = before
            self.delete("namespaces", name, timeout=None)

    # Waiting

    def until(
        self,
        what: str,
        probe: Callable[[], Answer | None],
        *,
        timeout: float = WAIT_SECONDS,
        describe: Callable[[], str] | None = None,
    ) -> Answer:
        """Wait until `probe` returns something true, and return it.

        A probe that takes long is made less often. `describe` is asked for the last state only when
        the time is over.
        """
        deadline = time.monotonic() + timeout
        while True:
            started = time.monotonic()
            answer = probe()
            if answer:
                return answer
            if started > deadline:
                state = f"; last seen:\n{describe()}" if describe else ""
                raise HarnessError(f"waited {timeout:g} s for {what}, in vain{state}")
            pause = _POLL_FACTOR * (time.monotonic() - started)
            time.sleep(min(max(_POLL_INTERVAL, pause), _LONGEST_POLL_INTERVAL))

    def wait_for(
        self,
        kind: str,
        name: str,
        predicate: Callable[[Json], object],
        namespace: str | None = None,
        *,
        timeout: float = WAIT_SECONDS,
        why: str = "",
    ) -> Json:
        """Wait until an object exists and `predicate` holds for it, and return it."""

        def probe() -> Json | None:
            current = self.get(kind, name, namespace)
            return current if current is not None and predicate(current) else None

        what = why or f"{kind} {self._in(namespace)}/{name} to satisfy the predicate"
        return self.until(
            what, probe, timeout=timeout, describe=lambda: self.describe(kind, name, namespace)
        )

    def wait_gone(
        self, kind: str, name: str, namespace: str | None = None, *, timeout: float = WAIT_SECONDS
    ) -> None:
        """Wait until an object is no more. The garbage collector hears of a new kind of owner half
        a minute after its CRD."""
        self.until(
            f"{kind} {self._in(namespace)}/{name} to be gone",
            lambda: self.get(kind, name, namespace) is None,
            timeout=timeout,
            describe=lambda: self.describe(kind, name, namespace),
        )

    def wait_items(
        self,
        kind: str,
        predicate: Callable[[list[Json]], object],
        namespace: str | None = None,
        *,
        selector: str = "",
        timeout: float = WAIT_SECONDS,
        why: str = "",
    ) -> list[Json]:
        """Wait until `predicate` holds for the list of a kind's objects, and return that list."""
        last: list[Json] = []

        def probe() -> tuple[list[Json]] | None:
            last[:] = self.items(kind, namespace, selector=selector)
            return (list(last),) if predicate(last) else None

        what = why or f"the {kind} of {self._in(namespace)} to satisfy the predicate"
        state = lambda: "\n".join(map(_brief, last)) or f"no {kind}"  # noqa: E731 - one line, used once
        return self.until(what, probe, timeout=timeout, describe=state)[0]

    def describe(self, kind: str, name: str, namespace: str | None = None) -> str:
        """Return an object's spec and status, its events, and the pods of its namespace."""
        current = self.get(kind, name, namespace)
        where = self._in(namespace)
        if current is None:
            return f"{kind} {where}/{name} does not exist"
        shown = {key: current.get(key) for key in ("spec", "status") if key in current}
        text = yaml.safe_dump(shown, sort_keys=False)[-_SHOWN_BYTES:]
        events = [
            f"  {event.get('count') or 1}x {event['reason']}: {event.get('message', '')}"
            for event in self.items("events", namespace)
            if event["involvedObject"].get("name") == name
        ]
        pods = [f"  {_brief(pod)}" for pod in self.items("pods", namespace)]
        return "\n".join([text, "events:", *(events or ["  none"]), "pods:", *(pods or ["  none"])])

    # Other views

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run the stack's kubectl as admin and return its output; `text` is its input."""
        result = subprocess.run(
            [str(self._kubectl), f"--kubeconfig={self.kubeconfig}", self._cache, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=_KUBECTL_SECONDS,
            check=False,
        )
        if result.returncode != 0:
            raise HarnessError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def allows(
        self, user: str, verb: str, resource: str, namespace: str, *, name: str = ""
    ) -> bool:
        """Ask whether a user may do this; `resource` as in RBAC: deployments.apps, pods/log.
        Without a name, to all objects of the namespace."""
        full_name, _, subresource = resource.partition("/")
        plural, _, group = full_name.partition(".")
        attributes = {
            "namespace": namespace,
            "verb": verb,
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "name": name,
        }
        review = {"spec": {"user": user, "resourceAttributes": attributes}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self.rest.request("POST", path, review)["status"]["allowed"])

    def requests(self, user: str, *, verbs: Iterable[str] = (), since: int = 0) -> list[Json]:
        """Return the audit events of one user, from `audit_mark()` on or all of them."""
        if self._audit_log is None:
            raise HarnessError("this Admin was made without the stack's audit log")
        wanted = set(verbs)
        return [
            event
            for event in self._audit_log.events(since)
            if event["user"]["username"] == user and (not wanted or event["verb"] in wanted)
        ]

    def audit_mark(self) -> int:
        """Return the present end of the audit log, to count from here on."""
        if self._audit_log is None:
            raise HarnessError("this Admin was made without the stack's audit log")
        return self._audit_log.mark()


WRITES = ("create", "update", "patch", "delete", "deletecollection")


def condition(kind: str, status: str = "True") -> Callable[[Json], bool]:
    """Return a predicate for `wait_for`: the object's condition of this type has this status."""

    def holds(item: Json) -> bool:
        conditions = (item.get("status") or {}).get("conditions") or []
        return any(c["type"] == kind and c["status"] == status for c in conditions)

    return holds


def _objects(manifest: str | Path | Json | Iterable[Json]) -> list[Json]:
    if isinstance(manifest, Path):
        manifest = manifest.read_text(encoding="utf-8")
    if isinstance(manifest, str):
        manifest = [item for item in yaml.load_all(manifest, yaml.CSafeLoader) if item]
    given = [manifest] if isinstance(manifest, dict) else list(manifest)
    return [one for item in given for one in (item["items"] if item["kind"] == "List" else [item])]


def _resources_of(group: str, version: Json) -> Iterator[Resource]:
    group_version = f"{group}/{version['version']}" if group else version["version"]
    for entry in version.get("resources") or []:
        kind = entry["responseKind"]["kind"]
        singular = entry.get("singularResource") or kind.lower()
        names = {kind.lower(), entry["resource"], singular, *(entry.get("shortNames") or [])}
        yield Resource(
            group_version,
            entry["resource"],
            kind,
            entry["scope"] == "Namespaced",
            frozenset(names | {f"{name}.{group}" for name in names if group}),
        )


def _brief(item: Json) -> str:
    """Return one line about an object; for a pod, what its containers do."""
    status = item.get("status") or {}
    states = [
        f"{entry['name']} {json.dumps(entry['state'])[:160]} restarts={entry['restartCount']}"
        for entry in status.get("containerStatuses") or []
    ]
    phase = status.get("phase", "")
    return " ".join([item["metadata"]["name"], phase, *states]).strip()
