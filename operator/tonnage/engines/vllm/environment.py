"""The environment of the vLLM container."""

from collections.abc import Iterable
from typing import Any

from tonnage.api.inference import InferenceDeploymentSpec, ModelSource
from tonnage.api.text import without_credentials
from tonnage.engines.defaults import load_defaults
from tonnage.engines.errors import ReservedVariableError
from tonnage.engines.inputs import RenderSettings
from tonnage.engines.quantity import render_stored
from tonnage.engines.replica import Replica
from tonnage.engines.vllm.lifetime import startup_seconds
from tonnage.placement.model import Option

Variable = dict[str, Any]


def render_environment(replica: Replica) -> list[Variable]:
    """The operator's variables, then those of the network between nodes, the pool's and the user's:
    the last one of a name wins."""
    source, declared = replica.spec.model.source, replica.option.pool.declared
    operator_values = {
        **_cache(),
        **load_defaults().environment.every,
        **load_defaults().environment.architectures.get(replica.accelerator.arch, {}),
        # vLLM's own start timeout, 600 s by default, must be as long as the startup probe's.
        "VLLM_ENGINE_READY_TIMEOUT_S": str(startup_seconds(replica.model_gib)),
        **_hub(source, replica.settings),
        **replica.option.settings.env,
    }
    return _keep_last_of_each_name(
        [
            *({"name": name, "value": value} for name, value in operator_values.items()),
            *_token(source),
            *_several_nodes(replica.option),
            *map(render_stored, declared.env if declared else []),
            *map(render_stored, replica.spec.engine.vllm.env),
        ]
    )


def check_environment(spec: InferenceDeploymentSpec) -> None:
    """Refuse variables that would give the container GPUs of other pods. Raises
    ReservedVariableError."""
    for index, variable in enumerate(spec.engine.vllm.env):
        if variable.name in load_defaults().reserved_variables.names:
            raise ReservedVariableError(f"spec.engine.vllm.env[{index}].name", variable.name)


def _cache() -> dict[str, str]:
    cache = load_defaults().cache
    folders = {
        name: f"{cache.path}/{folder}" if folder else cache.path
        for name, folder in cache.folders.items()
    }
    return {**folders, "USER": cache.user}


def _several_nodes(option: Option) -> list[Variable]:
    """Where the pods of a replica listen for each other, and the variables of their network."""
    if option.parallelism.nodes == 1:
        return []
    network = option.pool.network
    own = load_defaults().several_nodes.environment
    return [
        {"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        *({"name": name, "value": value} for name, value in own.items()),
        *map(render_stored, network.env if network else ()),
    ]


def _hub(source: ModelSource, settings: RenderSettings) -> dict[str, str]:
    if source.persistent_volume_claim:
        return {"HF_HUB_OFFLINE": "1"}  # the volume has all files
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
