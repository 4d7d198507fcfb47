"""A hundred objects at once, of which sixty have capacity."""

from __future__ import annotations

from collections import Counter

import yaml

from e2e.harness.rest import Json
from e2e.journeys.user import User, condition, has


def create_at_once(user: User, manifests: list[Json]) -> None:
    """One request after the other as fast as kubectl goes; the operator sees them meanwhile."""
    text = yaml.safe_dump_all(manifests)
    user.admin.kubectl("create", f"--namespace={user.namespace}", "-f", "-", text=text)


def objects(user: User) -> list[Json]:
    """All InferenceDeployments of the namespace."""
    return user.admin.items("infd")


def runs(model: Json) -> bool:
    """Whether the InferenceDeployment is ready."""
    return bool(has("Ready")(model.get("status") or {}))


def sixty_run(models: list[Json]) -> bool:
    """And all others say that GPUs are lacking."""
    placed = Counter(
        (placed.get("status"), placed.get("reason"))
        for one in models
        for placed in [condition(one.get("status") or {}, "Placed")]
    )
    lacking = placed["False", "InsufficientGPUs"]
    return sum(map(runs, models)) == 60 and lacking == len(models) - 60
