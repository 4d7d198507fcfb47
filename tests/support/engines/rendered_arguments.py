"""The lists of arguments that Tonnage renders for vLLM 0.32.0 and SGLang, over all that they depend
on."""

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product, takewhile
from pathlib import Path
from typing import Any, get_args

import yaml

from tests.golden.render.inputs import container_of, make_deployment, make_option, make_spec
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.rules import Settings
from tonnage.catalog.sglang_arguments import load_sglang_arguments
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments

VERSION = "v0.32.0"
GOLDEN = Path(__file__).parents[2] / "golden" / "render"
SAMPLED = 300
"""Of tens of thousands of combinations; every value of everything is among so many."""

OF_A_GROUP = {"LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "set-0.set.chat"}
"""Variables that the LeaderWorkerSet controller adds, in the second pod of a group."""

_FACTS = {"inline": {"config": {}}}
MODELS: list[dict[str, Any]] = [
    {"source": {"huggingFace": {"repo": "meta-llama/Llama-3.3-70B-Instruct"}}},
    {"source": {"huggingFace": {"repo": "a/b", "revision": "v1.0"}}, "name": "chat"},
    {"source": {"persistentVolumeClaim": {"claimName": "m", "path": "x/y", "facts": _FACTS}}},
    {"source": {"inline": {"config": {}, "loadFrom": "s3://weights/x"}}, "name": "-x $(HF_TOKEN)"},
]
DEGREES = [(1, 1), (8, 1), (4, 2)]
KV_CACHE_DTYPES = get_args(InferenceDeploymentSpec.model_fields["kv_cache_dtype"].annotation)
ENGINES: list[dict[str, Any]] = [
    {},
    {"gpuMemoryUtilization": 0.9},
    {"maxNumSeqs": 1, "maxNumBatchedTokens": 131_072},
    {"gpuMemoryUtilization": 0.875, "maxNumSeqs": 256, "enforceEager": True},
]
SGLANG_ENGINES: list[dict[str, Any]] = [
    {},
    {"memFractionStatic": 0.875},
    {"extraArgs": ["--max-queued-requests=64", "--schedule-policy", "lpm"]},
]
ADAPTERS: list[dict[str, Any] | None] = [
    None,
    {"maxLoras": 2, "maxRank": 64},
    {
        "adapters": [
            {"name": "sql", "rank": 8, "source": {"huggingFace": {"repo": "a/b"}}},
            {"name": "x.y", "rank": 9, "source": {"persistentVolumeClaim": {"claimName": "c"}}},
        ],
        "targetModules": ["qkv_proj", "o_proj"],
        "fullySharded": True,
    },
]
ADJUSTMENTS = [UNADJUSTED, EngineAdjustments(0.86, 16, 2048)]


def quantizations() -> list[str]:
    """Every method that the catalogue knows in this release, and what stands for none."""
    methods = read_data_file("quantization_methods.yaml")["methods"]
    known = [name for name, method in methods.items() if "until" not in method["known"]]
    return ["auto", *known]


def rule_settings() -> list[Settings]:
    """The arguments of every compatibility rule, and none."""
    rules = read_data_file("rules.yaml")["rules"]
    arguments_of_rules = [tuple(rule.get("settings", {}).get("args", ())) for rule in rules]
    return [
        Settings(),
        *(Settings(args=arguments) for arguments in arguments_of_rules if arguments),
    ]


def golden_containers(engine: str = "vllm") -> list[dict[str, Any]]:
    """The containers of all golden workloads with this engine."""
    objects = [
        document
        for path in sorted(GOLDEN.glob("*.output.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    containers = []
    for each in objects:
        if each["kind"] == "Deployment":
            containers.append(container_of(each))
        elif each["kind"] == "LeaderWorkerSet":
            templates = each["spec"]["leaderWorkerTemplate"]
            for name in ("leaderTemplate", "workerTemplate"):
                containers += templates[name]["spec"]["containers"]
    return [container for container in containers if container["name"] == engine]


def golden_lists(engine: str = "vllm") -> list[list[str]]:
    """The arguments of this engine in all golden workloads."""
    return [_as_started(container) for container in golden_containers(engine)]


def variables() -> set[str]:
    """The names of all environment variables that Tonnage sets by itself, by its rules too."""
    rules = read_data_file("rules.yaml")["rules"]
    by_rules = {name for rule in rules for name in rule.get("settings", {}).get("env", {})}
    in_pods = {variable["name"] for each in golden_containers() for variable in each["env"]}
    return by_rules | in_pods


def combined_lists() -> list[list[str]]:
    """Combinations of what arguments depend on, the same ones always."""
    everything = list(
        product(
            MODELS,
            ("mi300x", "h100-sxm-80gb"),
            DEGREES,
            KV_CACHE_DTYPES,
            quantizations(),
            ENGINES,
            rule_settings(),
            ADJUSTMENTS,
            ADAPTERS,
        )
    )
    return [_render(*each) for each in random.Random(0).sample(everything, SAMPLED)]


def combined_sglang_lists() -> list[list[str]]:
    """The same for SGLang."""
    quantization = load_sglang_arguments().arguments["quantization"]
    everything = list(
        product(
            MODELS,
            ("mi300x", "h100-sxm-80gb"),
            DEGREES,
            KV_CACHE_DTYPES,
            ("auto", *quantization.choices),
            SGLANG_ENGINES,
            ADJUSTMENTS,
        )
    )
    return [_render_sglang(*each) for each in random.Random(0).sample(everything, SAMPLED)]


def _render_sglang(
    model: dict[str, Any],
    accelerator: str,
    degrees: tuple[int, int],
    kv_cache_dtype: str,
    quantization: str,
    engine: dict[str, Any],
    adjustments: EngineAdjustments,
) -> list[str]:
    spec = make_spec(
        model=model,
        kvCacheDtype=kv_cache_dtype,
        quantization=quantization,
        engine={"sglang": engine},
    )
    tensor, pipeline = degrees
    option = make_option(accelerator, tensor=tensor, pipeline=pipeline)
    option = replace(option, adjustments=adjustments)
    return _as_started(container_of(make_deployment(spec, option)))


def _render(
    model: dict[str, Any],
    accelerator: str,
    degrees: tuple[int, int],
    kv_cache_dtype: str,
    quantization: str,
    engine: dict[str, Any],
    rules: Settings,
    adjustments: EngineAdjustments,
    adapters: dict[str, Any] | None,
) -> list[str]:
    spec = make_spec(
        model=model,
        kvCacheDtype=kv_cache_dtype,
        quantization=quantization,
        engine={"vllm": {"version": VERSION, **engine}},
        lora=adapters,
    )
    tensor, pipeline = degrees
    option = make_option(accelerator, tensor=tensor, pipeline=pipeline, rules=rules)
    adjusted = replace(option, adjustments=adjustments)
    return _as_started(container_of(make_deployment(spec, adjusted)))


def _as_started(container: dict[str, Any]) -> list[str]:
    """The arguments as the process gets them: a kubelet replaces variables of the container, and
    makes one dollar sign of two."""
    arguments: list[str] = container["args"]
    for name, value in OF_A_GROUP.items():
        arguments = [re.sub(rf"(?<!\$)\$\({name}\)", value, each) for each in arguments]
    return [argument.replace("$$(", "$(") for argument in arguments]


def flags_of(arguments: list[str]) -> Iterator[tuple[str, str | list[str] | None]]:
    """Each flag of a list with its value, a list where it has several items, None without any."""
    for index, argument in enumerate(arguments):
        if index and argument.startswith("-"):
            flag, equals, value = argument.partition("=")
            items = list(takewhile(lambda item: not item.startswith("-"), arguments[index + 1 :]))
            yield flag, value if equals else items or None
