"""The Git repository of a platform team, and the Application that deploys it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import yaml

from e2e.harness.admin import SLOW, Admin
from e2e.harness.rest import ApiError, Json
from e2e.programs.argo_cd import NAMESPACE, ArgoCd
from e2e.programs.argo_cd_settings import FOLDER
from e2e.programs.git_repository import GitRepository

KIND = "applications.argoproj.io"
_REFRESH = "argocd.argoproj.io/refresh"
_CASCADE = "resources-finalizer.argocd.argoproj.io"


def shipped(name: str) -> Json:
    """One of the samples in manifests/argo-cd."""
    manifest: Json = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    return manifest


class Delivery:
    """The shipped Application, on a repository and a namespace of one test's own."""

    def __init__(
        self, admin: Admin, argo_cd: ArgoCd, repository: GitRepository, namespace: str
    ) -> None:
        self.admin = admin
        self.argo_cd = argo_cd
        self.repository = repository
        self.namespace = namespace
        self.name = namespace
        self._revision = ""

    def commit(self, files: Mapping[str, Json | None]) -> None:
        """Change what is in Git, and tell Argo CD, as a webhook would."""
        self._revision = self.repository.commit(files)
        if self.admin.get(KIND, self.name, NAMESPACE) is not None:
            self.refresh()

    def deploy(self, *, options: Sequence[str] | None = None, **spec: Any) -> None:
        """Apply the shipped Application; `options` are sync options in place of its own."""
        manifest = shipped("application.yaml")
        manifest["metadata"]["name"] = self.name
        manifest["spec"]["source"] |= {"repoURL": self.repository.url, "path": "."}
        manifest["spec"]["destination"]["namespace"] = self.namespace
        manifest["spec"] |= spec
        if options is not None:
            manifest["spec"]["syncPolicy"]["syncOptions"] = list(options)
        self.admin.apply(manifest)

    def refresh(self) -> None:
        """Make Argo CD compare now."""
        change = {"metadata": {"annotations": {_REFRESH: "normal"}}}
        self.admin.patch(KIND, self.name, change, NAMESPACE)

    def application(self) -> Json:
        """The Application as it is now."""
        application = self.admin.get(KIND, self.name, NAMESPACE)
        assert application is not None, f"Application {self.name} is gone"
        return application

    def wait(self, health: str) -> Json:
        """Wait until the last commit is Synced, compared by the present spec, and the Application
        has this health."""

        def holds(application: Json) -> bool:
            status = application.get("status", {})
            sync = status.get("sync", {})
            ignored = sync.get("comparedTo", {}).get("ignoreDifferences") or []
            return bool(
                sync.get("status") == "Synced"
                and sync.get("revision") == self._revision
                and ignored == (application["spec"].get("ignoreDifferences") or [])
                and status.get("health", {}).get("status") == health
            )

        why = f"Application {self.name} to be Synced at {self._revision[:8]} and {health}"
        return self.admin.wait_for(KIND, self.name, holds, NAMESPACE, timeout=SLOW, why=why)

    def health_of(self, name: str) -> Json:
        """Health and message that Argo CD shows for one of the Application's resources; empty
        before it shows any."""
        resources = self.application().get("status", {}).get("resources") or []
        shown = (entry.get("health") for entry in resources if entry["name"] == name)
        return dict(next(shown, None) or {})

    def wait_message(self, name: str, begin: str) -> Json:
        """Wait until the message that Argo CD shows for a resource begins so; return its health."""

        def probe() -> Json | None:
            health = self.health_of(name)
            return health if health.get("message", "").startswith(begin) else None

        return self.admin.until(
            f"Argo CD to tell of {name}: {begin}",
            probe,
            timeout=SLOW,
            describe=lambda: str(self.health_of(name)),
        )

    def sync(self) -> Json:
        """Sync once more, as a person does by the button, and return what it came to."""
        policy = self.application()["spec"]["syncPolicy"]
        info = [{"name": "asked", "value": str(time.monotonic_ns())}]
        order = {"prune": True, "syncOptions": policy.get("syncOptions") or []}
        operation = {
            "initiatedBy": {"username": "person"},
            "info": info,
            "retry": policy["retry"],
            "sync": order,
        }

        def done() -> Json | None:
            application = self.application()
            if "operation" in application:
                return None
            state: Json = application["status"].get("operationState") or {}
            if state.get("operation", {}).get("info") != info:
                # None is under way, and this is not the last one: it was not asked for yet, or one
                # of self-heal, which was just ending, has taken it away with its own.
                self.admin.patch(KIND, self.name, {"operation": operation}, NAMESPACE)
                return None
            return state if state["phase"] != "Running" else None

        why = f"Application {self.name} to be synced"
        return self.admin.until(
            why,
            done,
            timeout=SLOW,
            describe=lambda: self.admin.describe(KIND, self.name, NAMESPACE),
        )

    def act(self, action: str, name: str) -> None:
        """Run one of the actions that Argo CD offers for a model."""
        of = ("--kind=InferenceDeployment", f"--resource-name={name}")
        self.argo_cd.run("app", "actions", "run", self.name, action, *of)

    def see(self, name: str, *, generation: int) -> None:
        """Wait until Argo CD knows this generation of a model, or a later one; what it does not
        know yet, a sync goes over."""

        def seen() -> bool:
            self.refresh()
            live = yaml.safe_load_all(
                self.argo_cd.run("app", "manifests", self.name, "--source=live")
            )
            metadata = (one["metadata"] for one in live if one and one["metadata"]["name"] == name)
            return any(one["generation"] >= generation for one in metadata)

        self.admin.until(f"Argo CD to see generation {generation} of {name}", seen, timeout=SLOW)

    def offered(self, name: str) -> dict[str, bool]:
        """Whether each action is enabled for a model."""
        of = ("--kind=InferenceDeployment", f"--resource-name={name}", "--out=json")
        actions = json.loads(self.argo_cd.run("app", "actions", "list", self.name, *of))
        return {entry["Action"]: not entry["Disabled"] for entry in actions}

    def withdraw(self) -> None:
        """Delete the Application, and with it all that it brought."""
        with suppress(ApiError):  # one that a test has deleted itself
            self.admin.patch(KIND, self.name, {"metadata": {"finalizers": [_CASCADE]}}, NAMESPACE)
            self.admin.delete(KIND, self.name, NAMESPACE, timeout=SLOW)
