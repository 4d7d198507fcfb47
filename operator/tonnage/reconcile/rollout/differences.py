"""Describe what one template of pods changes of another.

Arguments and variables are named without their values: a user's own may carry a key, and more
people read a status than a spec.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tonnage.engines.registry import engine_container
from tonnage.fit.messages import format_parallelism
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.plan_terms import Terms

_MODEL: Final = "the model"

_DESCRIBED: Final = {"name", "image", "command", "args", "env"}
"""Fields of the container that have a description of their own."""


def list_differences(before: Terms, after: Terms) -> Iterator[str]:
    """What the terms of one plan change of those of another, a phrase each."""
    yield from compare(named_terms(before), named_terms(after))
    flags = list(_list_changed_flags(before.arguments, after.arguments))
    if flags:
        yield f"arguments ({', '.join(flags)})"
    if before.command != after.command:
        yield "the command of the container"
    yield from compare({"volume": before.claim}, {"volume": after.claim})


def named_terms(terms: Terms) -> dict[str, str]:
    """The terms that a person compares by their values."""
    return {
        "pool": terms.pool,
        "accelerator": terms.accelerator,
        "parallelism": format_parallelism(terms.parallelism),
        "image": terms.image,
    }


def compare(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> Iterator[str]:
    """The values that differ, a phrase each."""
    for name, value in after.items():
        if before[name] != value:
            yield f"{name} from {before[name] or 'none'} to {value or 'none'}"


def _list_changed_flags(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Names of the flags whose arguments differ, in their order."""
    old, new = _by_flag(before), _by_flag(after)
    for flag in dict.fromkeys([*new, *old]):
        if old.get(flag) != new.get(flag):
            yield flag


def _by_flag(arguments: Iterable[str]) -> dict[str, list[str]]:
    """The arguments by their flag; a value without a flag belongs to the flag before it, the first
    one of all to the model."""
    by_flag: dict[str, list[str]] = {}
    flag = _MODEL
    for argument in arguments:
        if argument.startswith("-"):
            flag = argument.partition("=")[0]
        by_flag.setdefault(flag, []).append(argument)
    return by_flag


def list_settings(before: Object, after: Object) -> Iterator[str]:
    """What a pod template changes of another but for its terms: variables, then fields. `before`
    may have the API server's defaults as well; where the pods may run is left out."""
    old, new = (engine_container(each["spec"]) or {} for each in (before, after))
    variables = list(_list_changed_variables(old.get("env") or [], new.get("env") or []))
    if variables:
        yield f"environment ({', '.join(variables)})"
    fields = [
        *(name for name in new if name not in _DESCRIBED and not _covers(old.get(name), new[name])),
        *_list_changed_fields(before["spec"], after["spec"], {"containers", "affinity"}),
        *_list_changed_fields(before["metadata"], after["metadata"], set()),
    ]
    if fields:
        yield f"settings ({', '.join(fields)})"


def _list_changed_fields(
    before: Mapping[str, Any], after: Mapping[str, Any], left_out: set[str]
) -> Iterator[str]:
    for name, value in after.items():
        if name not in left_out and not _covers(before.get(name), value):
            yield name


def _list_changed_variables(
    before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    old = {variable["name"]: variable for variable in before}
    new = {variable["name"]: variable for variable in after}
    for name in dict.fromkeys([*new, *old]):
        if not _covers(old.get(name), new.get(name)):
            yield name


def _covers(before: object, after: object) -> bool:
    """Whether `before` has all of `after`, and maybe fields that the API server added."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return all(key in before and _covers(before[key], value) for key, value in after.items())
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_covers, before, after))
    return before == after
