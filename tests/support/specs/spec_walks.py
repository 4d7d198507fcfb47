"""Walks from spec to spec, as users take them: an edit, another spec, a mistake, a revert."""

import copy
from collections.abc import Collection
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from tests.support.api_server.admission import Schema, is_admitted, spec_schema
from tests.support.specs.spec_values import MODELS, Path, bad, choices, config_of, fields, good

Spec = dict[str, Any]
Walk = list[Spec]
Draw = st.DrawFn

_HOW: Final = ("good",) * 12 + ("bad", "gone")
"""What becomes of a field that is edited, most often something good."""


def first_spec(model: str) -> Spec:
    """A spec that says no more than it must."""
    source = {"inline": {"config": config_of(model)}}
    return {"model": {"source": source}, "workload": {"maxModelLen": 8192}, "replicas": 1}


def schema_without(paths: Collection[Path]) -> Schema:
    """The schema of the spec without these fields."""
    schema = copy.deepcopy(spec_schema())
    for path in paths:
        node = schema
        for name in path[:-1]:
            node = node["properties"][name]
        del node["properties"][path[-1]]
    return schema


@st.composite
def walks(draw: Draw, steps: int, schema: Schema) -> Walk:
    """So many specs, one after the other: each edits what is stored or the first, or is an old one
    once more."""
    walk = [first_spec(draw(st.sampled_from(MODELS)))]
    while len(walk) < steps:
        match draw(st.sampled_from(["edit", "edit", "edit", "from the first", "back"])):
            case "edit":
                walk.append(draw(_edited(_last_stored(walk), schema)))
            case "from the first":
                walk.append(draw(_edited(walk[0], schema)))
            case _:
                walk.append(draw(st.sampled_from(walk)))
    return walk


class _WithoutConstants(HypothesisProvider):
    """Draws no constants from the source of the modules that happen to be imported: by these, walks
    would depend on the tests that ran before."""

    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:
        return None


WITHOUT_CONSTANTS: Final = "without-constants"
"""The backend with which Hypothesis draws the same walks whatever is imported."""

AVAILABLE_PROVIDERS[WITHOUT_CONSTANTS] = _WithoutConstants


def fixed_walks(count: int, steps: int, schema: Schema) -> list[Walk]:
    """So many walks, always the same ones."""
    collected: list[Walk] = []

    @seed(0)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        backend=WITHOUT_CONSTANTS,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(walks(steps, schema))
    def keep(walk: Walk) -> None:
        collected.append(walk)

    keep()
    return collected


@st.composite
def _edited(draw: Draw, before: Spec, schema: Schema) -> Spec:
    """The spec with one to three fields set, broken or taken away."""
    spec = copy.deepcopy(before)
    for _ in range(draw(st.integers(1, 3))):
        area = draw(st.sampled_from(sorted(schema["properties"])))
        one_area = {"properties": {area: schema["properties"][area]}}
        path, inner = draw(st.sampled_from(list(fields(one_area))))
        how = draw(st.sampled_from(_HOW))
        if how == "gone":
            _remove(spec, path)
        else:
            value = draw((good if how == "good" else bad)(inner, path))
            _put(draw, spec, schema, path, value)
    return spec


def _put(draw: Draw, spec: Spec, schema: Schema, path: Path, value: Any) -> None:
    """Set a field; objects on the way to it that are not there come with what they require."""
    node = spec
    for depth, name in enumerate(path[:-1], start=1):
        _choose(node, schema, name)
        schema = schema["properties"][name]
        if not isinstance(node.get(name), dict):
            node[name] = _required(draw, schema, path[:depth])
        node = node[name]
    _choose(node, schema, path[-1])
    node[path[-1]] = value


def _choose(node: Spec, schema: Schema, name: str) -> None:
    """Of fields that exclude each other the others go."""
    excluding = choices(schema)
    if name in excluding:
        for other in set(excluding) - {name}:
            node.pop(other, None)


def _required(draw: Draw, schema: Schema, path: Path) -> Spec:
    names = [*schema.get("required", []), *choices(schema)[:1]]
    return {name: draw(good(schema["properties"][name], (*path, name))) for name in names}


def _remove(spec: Spec, path: Path) -> None:
    node: Any = spec
    for name in path[:-1]:
        node = node.get(name) if isinstance(node, dict) else None
    if isinstance(node, dict):
        node.pop(path[-1], None)


def _last_stored(walk: Walk) -> Spec:
    """What a user sees who edits: the API server keeps no bad one."""
    return next(spec for spec in reversed(walk) if is_admitted(spec))
