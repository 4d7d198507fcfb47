"""Pods that serve: where they are asked themselves, and how a question to Prometheus names them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_POD_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class ServingPod:
    """A pod that answers; `start` names this start of its container, `address` (host:port) is where
    it listens, None while it has none."""

    name: str
    start: str
    address: str | None


def select_pods(namespace: str, pods: Iterable[str]) -> str | None:
    """Matchers of exactly these pods, to stand in braces; None where there are none.

    What is no name of a pod is left out: it could end the matcher and ask for something else.
    """
    names = [name.replace(".", r"\\.") for name in pods if _POD_NAME.fullmatch(name)]
    return f'namespace="{namespace}",pod=~"{"|".join(names)}"' if names else None
