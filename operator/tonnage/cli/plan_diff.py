"""What a plan would change of what is there, field by field, as a unified diff of YAML.

Compared are the fields that the operator applies and those that it has applied before; what the
API server or anybody else added beside them is theirs.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml
from rich.console import Console
from rich.text import Text

from tonnage.api.conditions import ConditionType
from tonnage.api.names import CHILD_FIELD_MANAGER
from tonnage.cli.output import NoAliases
from tonnage.cli.planning import Planned, unowned
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Apply, Scale
from tonnage.reconcile.children import Child
from tonnage.reconcile.observe import Observation

_PLACEMENT_FIELDS: Final = (
    "name",
    "pool",
    "accelerator",
    "tensorParallelSize",
    "pipelineParallelSize",
    "gpusPerReplica",
    "replicas",
    "costPerHour",
)
"""What says where replicas run; all else in a placement is figures and progress."""

_IDENTITY: Final[Object] = {"apiVersion": None, "kind": None}

_COLOURS: Final = {"---": "bold", "+++": "bold", "@@": "cyan", "-": "red", "+": "green"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One object before and after, as YAML; empty text: it is not there."""

    name: str
    before: str
    after: str

    @property
    def lines(self) -> list[str]:
        """The unified diff; none where nothing changes."""
        return list(
            difflib.unified_diff(
                self.before.splitlines(),
                self.after.splitlines(),
                f"live/{self.name}" if self.before else "/dev/null",
                f"plan/{self.name}" if self.after else "/dev/null",
                lineterm="",
            )
        )


def diff_plan(planned: Planned) -> list[Difference]:
    """The placement and every child that the plan would write or delete."""
    observation, plan = planned.observation, planned.plan
    status = plan.status.to_dict()
    name = f"InferenceDeployment/{planned.key} status"
    placement = Difference(
        name, _dump(_placement(observation.previous_status)), _dump(_placement(status))
    )
    live = _children(observation)
    actions = (_as_shown(action, observation) for action in plan.all_actions)
    return [placement, *(diff_action(action, live) for action in actions)]


def show_diff(console: Console, plans: Iterable[Iterable[Difference]]) -> bool:
    """Print what differs; whether anything does."""
    lines = [line for plan in plans for difference in plan for line in difference.lines]
    for line in lines:
        style = next((_COLOURS[start] for start in _COLOURS if line.startswith(start)), "")
        console.print(Text(line, style), soft_wrap=True)
    return bool(lines)


def _placement(status: Mapping[str, Any]) -> Object:
    conditions = status.get("conditions") or []
    placed = (found for found in conditions if found.get("type") == ConditionType.PLACED)
    told = {
        "proposedPlan": _waiting(status.get("proposedPlan") or {}),
        "placed": next((f"{found['status']} {found.get('reason', '')}" for found in placed), None),
        "placements": [
            {field: found[field] for field in _PLACEMENT_FIELDS if field in found}
            for found in status.get("placements") or []
        ],
    }
    return {key: value for key, value in told.items() if value}


def _waiting(proposed: Mapping[str, Any]) -> Object:
    """What waits for approval, and what it would change."""
    return {field: proposed[field] for field in ("hash", "message") if field in proposed}


def diff_action(action: Action, live: Iterable[Object]) -> Difference:
    """What one write or deletion changes; `live` are the children that there are."""
    if isinstance(action, Scale):
        return _diff_scale(action)
    if not isinstance(action, Apply):
        name = f"{action.kind.kind}/{action.namespace}/{action.child.name}"
        return Difference(name, _dump(_ours(action.child.body, {})), "")
    wanted = _without_uid(action.body)
    metadata = wanted["metadata"]
    name = f"{action.kind.kind}/{metadata['namespace']}/{metadata['name']}"
    found = (
        body
        for body in live
        if (body.get("kind"), body["metadata"]["name"]) == (action.kind.kind, metadata["name"])
    )
    before = next(found, None)
    return Difference(name, _dump(_ours(before, wanted)) if before else "", _dump(wanted))


def _diff_scale(action: Scale) -> Difference:
    body, replicas = action.child.body, {"replicas": action.replicas}
    name = f"{action.kind.kind}/{action.namespace}/{action.child.name}"
    scaled = _ours(body | {"spec": body["spec"] | replicas}, {"spec": replicas})
    return Difference(name, _dump(_ours(body, {"spec": replicas})), _dump(scaled))


def _as_shown(action: Action, observation: Observation) -> Action:
    """The action without what depends on a uid that only the API server will give."""
    if isinstance(action, Apply) and not observation.uid:
        return replace(action, body=unowned(action.body))
    return action


def _children(observation: Observation) -> list[Object]:
    children = [found.child for found in observation.deployments]
    if observation.service is not None:
        children.append(observation.service)
    children.extend(observation.placement_services)
    if isinstance(observation.inference_pool, Child):
        children.append(observation.inference_pool)
    if observation.long_endpoint is not None:
        children.append(observation.long_endpoint)
    return [child.body for child in children]


def _without_uid(body: Object) -> Object:
    """The child without the precondition that it is the one that was seen."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "uid"}
    return body | {"metadata": metadata}


def _ours(live: Object, wanted: Object) -> Any:
    """The part of a live object that is the operator's, or is to become so."""
    managed = live["metadata"].get("managedFields") or []
    owned = next(
        (
            found.get("fieldsV1") or {}
            for found in managed
            if found.get("manager") == CHILD_FIELD_MANAGER and not found.get("subresource")
        ),
        {},
    )
    named = {name: live["metadata"].get(name) for name in ("name", "namespace")}
    metadata = {**named, **wanted.get("metadata", {})}
    return _part(live, {**_IDENTITY, **wanted, "metadata": metadata}, owned)


def _part(live: Any, wanted: Any, owned: Mapping[str, Any]) -> Any:
    """`live` cut down to the fields that are wanted or owned.

    `owned` is server-side apply's bookkeeping (fieldsV1): "f:spec" is a field of an object,
    'k:{"name":"http"}' an item of a list by its key.
    """
    if isinstance(live, Mapping):
        fields = wanted if isinstance(wanted, Mapping) else {}
        return {
            key: _part(value, fields.get(key), owned.get(f"f:{key}", {}))
            for key, value in live.items()
            if key in fields or f"f:{key}" in owned
        }
    if isinstance(live, list):
        return _part_of_list(live, wanted if isinstance(wanted, list) else [], owned)
    return live


def _part_of_list(live: list[Any], wanted: list[Any], owned: Mapping[str, Any]) -> list[Any]:
    """Named items that are wanted, in that order, or owned; of any other list every item."""
    if not all(isinstance(item, Mapping) and "name" in item for item in [*live, *wanted]):
        mates = [*wanted, *[None] * len(live)]
        pairs = zip(live, mates, strict=False)  # there are at least as many mates
        return [_part(item, mate, _keyed(owned, item) or {}) for item, mate in pairs]
    order = {item["name"]: position for position, item in enumerate(wanted)}
    kept = [
        (order.get(item["name"], len(order)), item, keyed)
        for item in live
        for keyed in [_keyed(owned, item)]
        if item["name"] in order or keyed is not None
    ]
    kept.sort(key=lambda entry: entry[0])
    return [
        _part(item, wanted[position] if position < len(wanted) else None, keyed or {})
        for position, item, keyed in kept
    ]


def _keyed(owned: Mapping[str, Any], item: Any) -> Mapping[str, Any] | None:
    """What is owned of a list's item; None where none of it is."""
    if not isinstance(item, Mapping):
        return None
    keys = {key: json.loads(key.removeprefix("k:")) for key in owned if key.startswith("k:")}
    return next((owned[key] for key, named in keys.items() if named.items() <= item.items()), None)


def _dump(value: Any) -> str:
    if not value:
        return ""
    return yaml.dump(value, Dumper=NoAliases, sort_keys=True, allow_unicode=True, width=100)
