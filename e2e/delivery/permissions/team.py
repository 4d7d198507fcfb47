"""A team without cluster-wide permissions: its ServiceAccount, Roles and fleet file."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.harness.admin import Admin
from e2e.harness.operator_process import ROOT, Account, OperatorProcess
from e2e.harness.rest import Json
from e2e.journeys.user import User

_OVERLAY = ROOT / "manifests" / "overlays" / "namespace-scoped"
_KINDS = ("Role", "RoleBinding", "ServiceAccount")
_SAMPLE = "chat"  # the namespace that the overlay serves
_RBAC = "rbac.authorization.k8s.io"


class MountedFile:
    """A file as a kubelet mounts a ConfigMap: behind a link that is turned to each new content."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._version = folder, 0
        folder.mkdir()
        self.path = folder / "fleet.yaml"
        self.path.symlink_to("..data/fleet.yaml")

    def put(self, text: str) -> None:
        """Replace the content at once."""
        self._version += 1
        version = self._folder / f"..{self._version}"
        version.mkdir()
        (version / "fleet.yaml").write_text(text, "utf-8")
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self._folder / "..data")

    def put_nodes(self, nodes: list[Json]) -> None:
        """Replace the content by these nodes, as the API server lists them."""
        self.put(json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": nodes}))


@dataclass(frozen=True)
class Team:
    """A team with two namespaces and an operator, and a namespace of another team."""

    admin: Admin
    account: Account
    operator: OperatorProcess
    chat: User
    search: User
    stranger: User
    roles: list[Json]
    mark: int

    def events(self) -> list[Json]:
        """What the operator asked for."""
        return self.admin.requests(self.account.user, since=self.mark)


def grant_roles(admin: Admin, account: Account, served: list[str]) -> list[Json]:
    """Apply the overlay's Roles in these namespaces, bound to the account; return them."""
    documents = yaml.safe_load_all(admin.kubectl("kustomize", str(_OVERLAY)))
    shipped = [document for document in documents if document["kind"] in _KINDS]
    bodies = [_in_place(body, account, namespace) for namespace in served for body in shipped]
    admin.apply(bodies)
    return [body for body in bodies if body["kind"] == "Role"]


def grant_on_cluster(admin: Admin, account: Account, rules: list[Json]) -> None:
    """Bind the account to a ClusterRole of these rules, named as its namespace."""
    common = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": account.namespace}}
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": account.namespace}
    admin.apply(
        [
            {**common, "kind": "ClusterRole", "rules": rules},
            {
                **common,
                "kind": "ClusterRoleBinding",
                "roleRef": reference,
                "subjects": [subject],
            },
        ]
    )


def withdraw_from_cluster(admin: Admin, account: Account) -> None:
    """Take back what `grant_on_cluster` granted, if anything."""
    for kind in ("clusterrolebindings", "clusterroles"):
        admin.delete(kind, account.namespace, timeout=None)


def _in_place(body: Json, account: Account, namespace: str) -> Json:
    """A document of the overlay, for this account and this served namespace."""
    body = deepcopy(body)
    here = body["metadata"]["namespace"]
    body["metadata"]["namespace"] = namespace if here == _SAMPLE else account.namespace
    for subject in body.get("subjects", []):
        subject["namespace"] = account.namespace
    return body
