"""Admission webhooks that refuse objects or change them before they are stored.

Source of the message: k8s.io/apiserver pkg/admission/plugin/webhook/errors/statuserror.go.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tonnage.kube.kinds import DEPLOYMENTS, PODS
from tonnage.kube.protocol import Kind, Object

Change = Callable[[dict[str, Any]], None]
"""Changes the spec of a pod or of a pod template in place."""


@dataclass(frozen=True)
class Webhook:
    """Sees objects of these kinds, of one namespace or (None) of all, when they are created or
    changed; `only` selects among them. It refuses them with a message, or changes their pod
    spec."""

    kinds: tuple[Kind, ...]
    message: str | None = None
    change: Change | None = None
    namespace: str | None = None
    only: Callable[[Object], bool] = lambda _: True

    def mutate(self, kind: Kind, body: Object) -> None:
        """Change the body in place."""
        if self._sees(kind, body) and self.change is not None:
            for spec in _pod_specs(kind, body):
                self.change(spec)

    def refuse(self, kind: Kind, body: Object) -> str | None:
        """Why the object is refused: the whole message of the API server."""
        if not self._sees(kind, body) or self.message is None:
            return None
        return f'admission webhook "policy.example.com" denied the request: {self.message}'

    def _sees(self, kind: Kind, body: Object) -> bool:
        place = body["metadata"].get("namespace")
        return kind in self.kinds and self.namespace in (None, place) and self.only(body)


def denying(message: str, *kinds: Kind, namespace: str | None = None) -> Webhook:
    """Refuses every object of these kinds; pods, where none is named."""
    return Webhook(kinds or (PODS,), message=message, namespace=namespace)


def rewriting_registry(mirror: str, *kinds: Kind) -> Webhook:
    """Has every image come from a mirror. Sees Deployments and pods, unless kinds are named."""

    def rewrite(spec: dict[str, Any]) -> None:
        for container in spec["containers"]:
            if not container["image"].startswith(f"{mirror}/"):
                container["image"] = f"{mirror}/{container['image']}"

    return Webhook(kinds or (DEPLOYMENTS, PODS), change=rewrite)


def adding_toleration(key: str, *kinds: Kind) -> Webhook:
    """Adds a toleration. Sees Deployments and pods, unless kinds are named."""
    added = {"key": key, "operator": "Exists"}

    def add(spec: dict[str, Any]) -> None:
        if added not in spec.setdefault("tolerations", []):
            spec["tolerations"].append(added)

    return Webhook(kinds or (DEPLOYMENTS, PODS), change=add)


def adding_node_selector(key: str, value: str, namespace: str | None = None) -> Webhook:
    """Keeps every pod on nodes with this label, as the PodNodeSelector plugin does."""

    def add(spec: dict[str, Any]) -> None:
        spec.setdefault("nodeSelector", {})[key] = value

    return Webhook((PODS,), change=add, namespace=namespace)


def _pod_specs(kind: Kind, body: Object) -> Iterator[dict[str, Any]]:
    if kind == PODS:
        yield body["spec"]
    elif "template" in body.get("spec", {}):
        yield body["spec"]["template"]["spec"]
