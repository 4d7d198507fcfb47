"""Pods of the behaviour `never-ready`, which become ready when a test lets them: it sees what is
reported until then, however slow the machine."""

from __future__ import annotations

from e2e.journeys.user import User
from e2e.nodes.behaviours import KEY


def let_come_up(user: User, name: str) -> None:
    """The pods that an object has become ready; the next ones do not."""
    pods = user.admin.until(f"a pod of {name}", lambda: user.pods(name))
    for pod in pods:
        user.admin.patch("pods", pod, {"metadata": {"labels": {KEY: None}}})
