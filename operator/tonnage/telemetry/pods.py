"""Serving pods: their addresses, and how a query to Prometheus selects them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_POD_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class ServingPod:
    """A serving pod. `start` identifies this start of its container; `address` (host:port) is where
    it listens, None while it has no IP; `engine` is the name of its engine, "" if unknown."""

    name: str
    start: str
    address: str | None
    engine: str = ""


def select_pods(namespace: str, pods: Iterable[str]) -> str | None:
    """Matchers of exactly these pods, to be put in braces; None if there are none.

    Omits invalid pod names, which could end the matcher and inject a query.
    """
    names = [name.replace(".", r"\\.") for name in pods if _POD_NAME.fullmatch(name)]
    return f'namespace="{namespace}",pod=~"{"|".join(names)}"' if names else None
