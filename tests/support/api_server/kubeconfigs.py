"""Kubeconfigs of clusters that do not exist."""

from pathlib import Path
from typing import Any

import yaml


def write_kubeconfig(path: Path, **namespaces: str | None) -> str:
    """A kubeconfig with a context of each name and namespace; the first one is the current one."""
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(namespaces)),
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [_context(name, namespace) for name, namespace in namespaces.items()],
    }
    path.write_text(yaml.safe_dump(body))
    return str(path)


def _context(name: str, namespace: str | None) -> dict[str, Any]:
    named = {} if namespace is None else {"namespace": namespace}
    return {"name": name, "context": {"cluster": "c", "user": "u", **named}}
