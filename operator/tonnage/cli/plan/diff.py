"""Compares a plan with the live objects, field by field, as a unified diff of YAML.

The diff covers fields that the operator applies or has applied before. It leaves out fields of the
API server and of other managers.
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
from tonnage.cli.plan.planning import RECORDS, Planned, without_owner
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Apply, Scale
from tonnage.reconcile.observation.children import Child
from tonnage.reconcile.observation.observation import Observation

_PLACEMENT_FIELDS: Final = (
    "name",
    "pool",
    "accelerator",
    "tensorParallelSize",
    "pipelineParallelSize",
    "dataParallelSize",
    "nodesPerReplica",
    "gpusPerReplica",
    "replicas",
    "costPerHour",
)
"""Fields that say where replicas run; the others are figures and progress."""

_IDENTITY: Final[Object] = {"apiVersion": None, "kind": None}

_COLOURS: Final = {"---": "bold", "+++": "bold", "@@": "cyan", "-": "red", "+": "green"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One object before and after, as YAML; empty if it does not exist."""

    name: str
    before: str
    after: str

    @property
    def lines(self) -> list[str]:
        """The unified diff; empty without a change."""
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
    """The differences of the placement and of each child that the plan writes or deletes."""
    observation, plan = planned.observation, planned.plan
    status = plan.status.to_dict()
    name = f"InferenceDeployment/{planned.key} status"
    before = _summarize_placement(observation.previous_status)
    placement = Difference(name, _dump(before), _dump(_summarize_placement(status)))
    live = _children(observation)
    actions = (_without_owner(action, observation) for action in plan.all_actions)
    return [placement, *(diff_action(action, live) for action in actions)]


def show_diff(console: Console, plans: Iterable[Iterable[Difference]]) -> bool:
    """Print the differences; return whether there are any."""
    lines = [line for plan in plans for difference in plan for line in difference.lines]
    for line in lines:
        style = next((_COLOURS[start] for start in _COLOURS if line.startswith(start)), "")
        console.print(Text(line, style), soft_wrap=True)
    return bool(lines)


def _summarize_placement(status: Mapping[str, Any]) -> Object:
    conditions = status.get("conditions") or []
    placed = (one for one in conditions if one.get("type") == ConditionType.PLACED)
    summary = {
        "proposedPlan": _summarize_proposed(status.get("proposedPlan") or {}),
        "placed": next((f"{one['status']} {one.get('reason', '')}" for one in placed), None),
        "placements": [
            {field: placement[field] for field in _PLACEMENT_FIELDS if field in placement}
            for placement in status.get("placements") or []
        ],
    }
    return {key: value for key, value in summary.items() if value}


def _summarize_proposed(proposed: Mapping[str, Any]) -> Object:
    """The hash and message of the plan that waits for approval."""
    return {field: proposed[field] for field in ("hash", "message") if field in proposed}


def diff_action(action: Action, live: Iterable[Object]) -> Difference:
    """The difference that one write or deletion makes; `live` are the existing children."""
    if isinstance(action, Scale):
        return _diff_scale(action)
    if not isinstance(action, Apply):
        name = f"{action.kind.kind}/{action.child.namespace}/{action.child.name}"
        return Difference(name, _dump(_managed_fields(action.child.body, {})), "")
    wanted = _without_uid(action.body)
    metadata = wanted["metadata"]
    name = f"{action.kind.kind}/{metadata['namespace']}/{metadata['name']}"
    matches = (
        body
        for body in live
        if (body.get("kind"), body["metadata"]["name"]) == (action.kind.kind, metadata["name"])
    )
    before = next(matches, None)
    live_text = _dump(_without_records(_managed_fields(before, wanted))) if before else ""
    return Difference(name, live_text, _dump(_without_records(wanted)))


def _diff_scale(action: Scale) -> Difference:
    body, replicas = action.child.body, {"replicas": action.replicas}
    name = f"{action.kind.kind}/{action.child.namespace}/{action.child.name}"
    scaled = _managed_fields(body | {"spec": body["spec"] | replicas}, {"spec": replicas})
    return Difference(name, _dump(_managed_fields(body, {"spec": replicas})), _dump(scaled))


def _without_owner(action: Action, observation: Observation) -> Action:
    """The action without fields that depend on a uid that only the API server can set."""
    if isinstance(action, Apply) and not observation.uid:
        return replace(action, body=without_owner(action.body))
    return action


def _children(observation: Observation) -> list[Object]:
    children = [deployment.child for deployment in observation.deployments]
    if observation.service is not None:
        children.append(observation.service)
    children.extend(observation.placement_services)
    if isinstance(observation.inference_pool, Child):
        children.append(observation.inference_pool)
    if observation.long_endpoint is not None:
        children.append(observation.long_endpoint)
    if observation.budgets is not None:
        children.extend(observation.budgets.own)
    return [child.body for child in children]


def _without_uid(body: Object) -> Object:
    """The child without the uid precondition."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "uid"}
    return body | {"metadata": metadata}


def _without_records(body: Object) -> Object:
    """The child without annotations that people cannot read."""
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    kept = {key: value for key, value in annotations.items() if key not in RECORDS}
    return body | {"metadata": metadata | {"annotations": kept}}


def _managed_fields(live: Object, wanted: Object) -> Any:
    """The fields of a live object that the operator manages or would manage."""
    managed = live["metadata"].get("managedFields") or []
    owned = next(
        (
            entry.get("fieldsV1") or {}
            for entry in managed
            if entry.get("manager") == CHILD_FIELD_MANAGER and not entry.get("subresource")
        ),
        {},
    )
    identity = {field: live["metadata"].get(field) for field in ("name", "namespace")}
    metadata = {**identity, **wanted.get("metadata", {})}
    return _select_fields(live, {**_IDENTITY, **wanted, "metadata": metadata}, owned)


def _select_fields(live: Any, wanted: Any, owned: Mapping[str, Any]) -> Any:
    """Select the fields of `live` that are wanted or owned.

    `owned` is the fieldsV1 of server-side apply: "f:spec" is a field of an object,
    'k:{"name":"http"}' an item of a list by its key.
    """
    if isinstance(live, Mapping):
        fields = wanted if isinstance(wanted, Mapping) else {}
        return {
            key: _select_fields(value, fields.get(key), owned.get(f"f:{key}", {}))
            for key, value in live.items()
            if key in fields or f"f:{key}" in owned
        }
    if isinstance(live, list):
        return _select_items(live, wanted if isinstance(wanted, list) else [], owned)
    return live


def _select_items(live: list[Any], wanted: list[Any], owned: Mapping[str, Any]) -> list[Any]:
    """Select the named items that are wanted (in that order) or owned; all items of other lists."""
    if not all(isinstance(item, Mapping) and "name" in item for item in [*live, *wanted]):
        padded = [*wanted, *[None] * len(live)]
        pairs = zip(live, padded, strict=False)  # `padded` is at least as long
        return [
            _select_fields(item, want, _owned_by_key(owned, item) or {}) for item, want in pairs
        ]
    order = {item["name"]: position for position, item in enumerate(wanted)}
    kept = [
        (order.get(item["name"], len(order)), item, owned_fields)
        for item in live
        for owned_fields in [_owned_by_key(owned, item)]
        if item["name"] in order or owned_fields is not None
    ]
    kept.sort(key=lambda entry: entry[0])
    return [
        _select_fields(item, wanted[position] if position < len(wanted) else None, fields or {})
        for position, item, fields in kept
    ]


def _owned_by_key(owned: Mapping[str, Any], item: Any) -> Mapping[str, Any] | None:
    """The owned fields of a list item; None if none is owned."""
    if not isinstance(item, Mapping):
        return None
    keys = {key: json.loads(key.removeprefix("k:")) for key in owned if key.startswith("k:")}
    return next(
        (owned[key] for key, fields in keys.items() if fields.items() <= item.items()), None
    )


def _dump(value: Any) -> str:
    if not value:
        return ""
    return yaml.dump(value, Dumper=NoAliases, sort_keys=True, allow_unicode=True, width=100)
