"""The environment of the engine's container."""

from collections.abc import Iterable
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.model import HuggingFaceSource, ModelSource
from tonnage.api.text import without_credentials
from tonnage.engines.compile_cache import compile_cache_variables
from tonnage.engines.defaults import load_defaults
from tonnage.engines.errors import ReservedVariableError
from tonnage.engines.inputs import RenderSettings
from tonnage.engines.interface import EngineKind
from tonnage.engines.quantity import render_stored
from tonnage.engines.replica import Replica
from tonnage.placement.model import Option

Variable = dict[str, Any]

_OFFLINE: Final = "HF_HUB_OFFLINE"


def render_environment(engine: EngineKind, replica: Replica) -> list[Variable]:
    """The operator's variables, then those of the network between nodes, the pool's and the user's:
    the last one of a name wins."""
    source, declared = replica.spec.model.source, replica.option.pool.declared
    is_cached = replica.spec.model.cache is not None
    others = load_defaults().engine_variables.engines
    environment = load_defaults().environment
    operator_values = {
        **_cache(),
        **compile_cache_variables(engine, replica),
        **environment.every,
        **environment.architectures.get(replica.accelerator.arch, {}),
        **engine.render_variables(replica),
        **({_OFFLINE: "1"} if is_cached else _hub(source, replica.settings)),
        **replica.option.settings.env,
    }
    return _keep_last_of_each_name(
        [
            *(
                {"name": name, "value": value}
                for name, value in operator_values.items()
                if others.get(name, engine.name) == engine.name
            ),
            *([] if is_cached else _token(source)),
            *_several_nodes(engine, replica.option),
            *map(render_stored, declared.env if declared else []),
            *map(render_stored, replica.spec.engine.settings.env),
        ]
    )


def render_hub_environment(
    engine: EngineKind, replica: Replica, source: HuggingFaceSource
) -> list[Variable]:
    """The environment of a container that downloads from another repository than the model's: the
    same Hub, caches and proxies, and the token of the repository if it has one."""
    variables = [
        variable for variable in render_environment(engine, replica) if variable["name"] != _OFFLINE
    ]
    hub, model = ModelSource(hugging_face=source), replica.spec.model
    endpoint = [
        {"name": name, "value": value} for name, value in _hub(hub, replica.settings).items()
    ]
    of_model = [] if model.cache is None else _token(model.source)  # it is not among `variables`
    return _keep_last_of_each_name([*variables, *endpoint, *of_model, *_token(hub)])


def check_environment(spec: InferenceDeploymentSpec) -> None:
    """Refuse variables that would give the container GPUs of other pods. Raises
    ReservedVariableError."""
    for index, variable in enumerate(spec.engine.settings.env):
        if variable.name in load_defaults().reserved_variables.names:
            field = f"spec.engine.{spec.engine.name}.env[{index}].name"
            raise ReservedVariableError(field, variable.name)


def _cache() -> dict[str, str]:
    cache = load_defaults().cache
    folders = {
        name: f"{cache.path}/{folder}" if folder else cache.path
        for name, folder in cache.folders.items()
    }
    return {**folders, "USER": cache.user}


def _several_nodes(engine: EngineKind, option: Option) -> list[Variable]:
    """Where the pods of a replica listen for each other, and the variables of their network."""
    if option.parallelism.nodes == 1:
        return []
    network = option.pool.network
    own = load_defaults().several_nodes.environment
    return [
        {
            "name": engine.address_variable,
            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
        },
        *({"name": name, "value": value} for name, value in own.items()),
        *map(render_stored, network.env if network else ()),
    ]


def _hub(source: ModelSource, settings: RenderSettings) -> dict[str, str]:
    if source.persistent_volume_claim:
        return {_OFFLINE: "1"}  # the volume has all files
    if not settings.hf_endpoint:
        return {}
    # Without the operator's password, which each reader of Deployments could read.
    return {"HF_ENDPOINT": without_credentials(settings.hf_endpoint)}


def _token(source: ModelSource) -> list[Variable]:
    """The Hub's token by reference: its value never passes through the operator."""
    secret = source.hugging_face.token_secret_ref if source.hugging_face else None
    if secret is None:
        return []
    return [
        {
            "name": "HF_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}},
        }
    ]


def _keep_last_of_each_name(variables: Iterable[Variable]) -> list[Variable]:
    """One variable per name, at the position of the last: `$(NAME)` refers to earlier variables."""
    by_name: dict[str, Variable] = {}
    for variable in variables:
        by_name.pop(variable["name"], None)
        by_name[variable["name"]] = variable
    return list(by_name.values())
