"""An API server with something in front of it: what a subclass leaves alone goes through."""

from typing import Any

from tonnage.kube.protocol import KubeApi


class Forwarding:
    """Hands every call on."""

    def __init__(self, behind: KubeApi) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)
