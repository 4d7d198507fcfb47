"""Random histories on a real control plane, and whether any GPU was promised twice in them.

What is looked at is what the API server lists, again and again: nodes, pods, Deployments. It is a
double booking when the pods bound to a node ask for more GPUs than it has, or when, at rest, a
Deployment's replica has no GPUs though on the nodes where it may run none was lost since it was
promised (see tests/support/faults/promise_book.py). Replicas for which there are GPUs enough, but
in no block as large as they need, are counted apart.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from e2e.harness.admin import Admin
from e2e.harness.operator_process import OperatorProcess, RestartedOperator, install
from e2e.harness.rest import ApiError, Json
from e2e.harness.stack import Stack, down, up
from e2e.models import inference
from e2e.nodes.fleet import apply_fleet
from tests.support.faults.promise_book import PromiseBook, Verdict, find_overcommitted
from tests.support.fleets.promises import Promise, Sight, read_promises

NAMES: Final = ("alpha", "beta", "gamma", "delta", "omega")
GROUPS: Final[dict[str, Json]] = {
    "mi300x": {"name": "mi300x", "accelerator": "mi300x", "count": 2, "gpusPerNode": 2},
    "h100": {"name": "h100", "accelerator": "h100-sxm-80gb", "count": 2, "gpusPerNode": 4},
    "l40s": {"name": "l40s", "accelerator": "l40s", "count": 1, "gpusPerNode": 4},
}
"""Of these nodes there is never enough for what NAMES ask for."""

_RESOURCES: Final = {"mi300x": "amd.com/gpu", "h100": "nvidia.com/gpu", "l40s": "nvidia.com/gpu"}
_SPECS: Final[dict[str, dict[str, Any]]] = {
    "one": {"checkpoint": "llama-3.1-8b"},
    "three": {"checkpoint": "llama-3.1-8b", "replicas": 3},
    "five": {"checkpoint": "llama-3.1-8b", "replicas": 5},
    "none": {"checkpoint": "llama-3.1-8b", "replicas": 0},
    "70B": {"checkpoint": "llama-3.3-70b"},
    "two of 70B on NVIDIA": {
        "checkpoint": "llama-3.3-70b",
        "replicas": 2,
        "placement": {"accelerators": ["h100-sxm-80gb", "l40s"]},
    },
    "recreate": {
        "checkpoint": "llama-3.1-8b",
        "replicas": 2,
        "rollout": {"strategy": "Recreate"},
    },
}
_SLOW_END: Final = {"metadata": {"annotations": {"e2e.tonnage.dev/stop-after": "3s"}}}
_PACE: Final = 0.5
"""Longest pause between two acts in seconds."""

_REST_SECONDS: Final = 2.0
"""Nothing changes for so long: all are at rest."""

_REST_TIMEOUT: Final = 60.0


def run_histories(seeds: Iterable[int]) -> Iterator[tuple[int, Verdict]]:
    """Run them one after the other on a control plane started for them."""
    root = Path(tempfile.mkdtemp(prefix="tonnage-histories-"))
    stack = up(root, owner_pid=os.getpid())
    try:
        admin = Admin(stack.kubeconfig, stack.kubectl)
        install(admin)
        operator = RestartedOperator(stack, root / "operator")
        operator.start()
        try:
            for seed in seeds:
                chance = random.Random(seed)  # noqa: S311 - a history is to be repeatable
                yield seed, History(stack, admin, operator, chance).run()
        finally:
            operator.close()
    finally:
        down(root)
        shutil.rmtree(root, ignore_errors=True)


class History:
    """One history: a namespace of its own, the same nodes at its beginning."""

    def __init__(
        self, stack: Stack, admin: Admin, operator: OperatorProcess, chance: random.Random
    ) -> None:
        self._stack, self._admin, self._operator = stack, admin, operator
        self._chance = chance
        self._book = PromiseBook()
        self._verdict = Verdict()
        self._moment = 0

    def run(self, steps: int = 30) -> Verdict:
        """Let so many random things happen, let all come to rest, and count double bookings."""
        apply_fleet(self._stack.access, {"groups": list(GROUPS.values())}, prune=True)
        with self._admin.fresh_namespace("history"):
            for _ in range(3):
                self._apply()
            for _ in range(steps):
                self._chance.choices(*zip(*self._acts().items(), strict=True))[0]()
                self._verdict.steps += 1
                self._look()
                time.sleep(self._chance.uniform(0, _PACE))  # acts come at any moment of a reconcile
            self._rest()
            self._clear()
        return self._verdict

    def _acts(self) -> dict[Callable[[], object], int]:
        return {
            self._apply: 8,
            self._scale: 4,
            self._delete: 3,
            self._cordon: 2,
            self._leave: 1,
            self._join: 2,
            self._foreign_pod: 2,
            self._foreign_pod_ends: 2,
            self._evict: 3,
            self._restart: 1,
            self._rest: 1,
        }

    # What is looked at

    def _look(self) -> tuple[Sight, list[Promise]]:
        """Deployments before pods: a promise that is newer than what is seen is left for later."""
        self._moment += 1
        deployments = self._ours("deployments")
        objects = self._admin.items("infd")
        sight = Sight(self._admin.items("nodes"), self._admin.items("pods", everywhere=True))
        promises = read_promises(deployments, objects, sight.nodes)
        self._book.note_losses(sight, self._moment)
        # It may have been made before this look's losses, and after those of the look before.
        grown = self._book.note_promises(promises, self._moment - 1)
        self._verdict.promises += len(grown)
        self._tell(find_overcommitted(_without_ended(sight)))
        return sight, promises

    def _ours(self, kind: str) -> list[Json]:
        return self._admin.items(kind, selector="tonnage.dev/inferencedeployment")

    def _rest(self) -> None:
        """Wait until nothing changes any more, then look whether every promise is kept."""
        deadline = time.monotonic() + _REST_TIMEOUT
        since, before = time.monotonic(), self._versions()
        while time.monotonic() - since < _REST_SECONDS:
            time.sleep(0.2)  # between two looks, each of which reads everything
            sight, _ = self._look()
            now = self._versions()
            if now != before or sight.has_ending:
                since, before = time.monotonic(), now
            if time.monotonic() > deadline:
                self._verdict.restless += 1
                return
        unkept, scattered = self._book.find_unkept(*self._look())
        self._tell(unkept)
        self._verdict.scattered += scattered

    def _versions(self) -> list[str]:
        versions = [*self._admin.items("infd"), *self._ours("deployments"), *self._ours("pods")]
        return [
            f"{one['metadata']['uid']}@{one['metadata']['resourceVersion']}" for one in versions
        ]

    def _tell(self, bookings: Iterable[str]) -> None:
        self._verdict.double_bookings += [
            f"moment {self._moment}: {booking}" for booking in bookings
        ]

    # What happens

    def _apply(self) -> None:
        spec = _SPECS[self._chance.choice(sorted(_SPECS))]
        slow: dict[str, Any] = {"template": _SLOW_END} if self._chance.random() < 0.5 else {}
        self._admin.apply(inference(self._chance.choice(NAMES), **spec, **slow))

    def _scale(self) -> None:
        for model in self._admin.items("infd")[:1]:
            name = model["metadata"]["name"]
            self._admin.patch("infd", name, {"spec": {"replicas": self._chance.randint(0, 6)}})

    def _delete(self) -> None:
        self._admin.delete("infd", self._chance.choice(NAMES), timeout=None)

    def _cordon(self) -> None:
        cordoned = self._chance.random() < 0.5
        self._patch("nodes", self._some_node(), {"spec": {"unschedulable": cordoned}})

    def _leave(self) -> None:
        self._admin.delete("nodes", self._some_node(), timeout=None)

    def _join(self) -> None:
        group = GROUPS[self._chance.choice(sorted(GROUPS))]
        apply_fleet(self._stack.access, {"groups": [group]}, wait=False)

    def _foreign_pod(self) -> None:
        resource = _RESOURCES[self._chance.choice(sorted(GROUPS))]
        limits = {resource: str(self._chance.choice((1, 2, 4)))}
        name = f"job-{self._chance.randint(0, 3)}"
        container = {"name": "job", "image": "job", "resources": {"limits": limits}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self._admin.namespace},
            "spec": {"containers": [container]},
        }
        if self._admin.get("pods", name) is None:
            self._admin.apply(body)

    def _foreign_pod_ends(self) -> None:
        self._admin.delete("pods", f"job-{self._chance.randint(0, 3)}", timeout=None)

    def _evict(self) -> None:
        pods = self._ours("pods")
        if pods:
            name = self._chance.choice(pods)["metadata"]["name"]
            self._admin.delete("pods", name, timeout=None)

    def _restart(self) -> None:
        """Another process takes over; after a kill it has to wait until the lease runs out."""
        end = self._operator.kill if self._chance.random() < 0.3 else self._operator.stop
        end()
        self._operator.start()

    def _some_node(self) -> str:
        group = self._chance.choice(sorted(GROUPS))
        return f"{group}-{self._chance.randrange(GROUPS[group]['count'])}"

    def _patch(self, kind: str, name: str, change: Json) -> None:
        try:
            self._admin.patch(kind, name, change)
        except ApiError as error:
            if error.code != 404:  # it has left meanwhile
                raise

    def _clear(self) -> None:
        for item in self._admin.items("infd"):
            self._admin.delete("infd", item["metadata"]["name"], timeout=None)
        for item in self._admin.items("pods"):
            self._admin.delete("pods", item["metadata"]["name"], timeout=None)
        self._admin.until(
            "the pods of this history to be gone",
            lambda: not self._admin.items("pods", everywhere=True),
            timeout=60,
        )


def _without_ended(sight: Sight) -> Sight:
    """Without pods of nodes that have left: the collector of such pods takes its time."""
    there = {node["metadata"]["name"] for node in sight.nodes}
    return replace(sight, pods=[pod for pod in sight.pods if pod["spec"].get("nodeName") in there])
