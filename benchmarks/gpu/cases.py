"""The cases of cases.yaml as they travel: config.json, and what the operator renders for it.

    python -m benchmarks.gpu.cases --output FOLDER [--left]

writes cases.jsonl: for each case the configuration of its model, and the arguments and variables of
the container that `tonnage plan` shows for a node with one such GPU; and serve.json, the same for
the model that is served. With --left, only cases that accuracy/records/h200.jsonl lacks.
"""

import argparse
import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from accuracy.hardware import hardware_starts
from accuracy.records import models
from tests.support.fleets.gpu_nodes import H200, nvidia_node
from tonnage.cli.main import main as tonnage

CASES: Final = Path(__file__).with_name("cases.yaml")
_RANDOM_WEIGHTS: Final = ("--load-format=dummy", "--skip-tokenizer-init")
_SPEEDS_SECONDS: Final = 150


class _Part(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, protected_namespaces=()
    )


class Case(_Part):
    """One start of vLLM on one GPU; cases.yaml says what the fields mean."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")]
    model: str
    max_model_len: int
    eager: bool = False
    cache_dtype: str = "auto"
    text: bool = False
    layers: int | None = None
    overrides: dict[str, Any] = {}
    capacity: float | None = None
    extra_args: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    speeds: bool = False
    prompt: int = 512
    held_out: bool = False
    limit_seconds: int = 110

    @property
    def object_name(self) -> str:
        """The name of its InferenceDeployment."""
        return self.id.replace(".", "-")

    def config(self) -> dict[str, Any]:
        """The config.json of its model."""
        config = dict(models()[self.model].config)
        if self.text:
            config = config["text_config"] | {
                "architectures": ["Gemma3ForCausalLM"],
                "torch_dtype": config["torch_dtype"],
            }
        if self.layers is not None:
            config["num_hidden_layers"] = self.layers
        return config | self.overrides


class Served(_Part):
    """The model that is served with random weights, and the load that it is asked to carry."""

    model: str
    name: str
    workload: dict[str, int]


class Measurement(_Part):
    """All cases, and the accelerator, release and variables of vLLM that they share."""

    accelerator: str
    vllm_version: str
    environment: dict[str, str]
    cases: tuple[Case, ...]
    serve: Served

    def question(self, case: Case, utilization: float | None) -> dict[str, Any]:
        """The case as `tonnage fit --batch` reads it."""
        return {
            "id": case.id,
            "vendor": "nvidia",
            "model": {"id": case.model, "config": case.config()},
            "accelerator": self.accelerator,
            "gpusPerNode": 1,
            "engine": {
                "vllmVersion": self.vllm_version.removeprefix("v"),
                "tensorParallelSize": 1,
                "maxModelLen": case.max_model_len,
                "kvCacheDtype": case.cache_dtype,
                "enforceEager": case.eager,
                "gpuMemoryUtilization": utilization,
                "extraArgs": list(case.extra_args),
            },
        }

    def utilization(self, case: Case) -> float | None:
        """The share of the GPU at which the KV cache holds `capacity` of the longest requests."""
        if case.capacity is None:
            return None
        low, high = 0.3, 0.98
        while high - low > 1e-5:
            middle = (low + high) / 2
            tokens = _fit(self.question(case, middle)).get("kvCacheTokens") or 0
            enough = tokens >= case.capacity * case.max_model_len
            low, high = (low, middle) if enough else (middle, high)
        return round(high, 4)

    def travelling_cases(self, cases: list[Case]) -> Iterator[dict[str, Any]]:
        """What measure.py reads."""
        objects = [self._inference_deployment(case) for case in cases]
        containers = _plan_containers(objects)
        for case in cases:
            container, utilization = containers[case.object_name], self.utilization(case)
            # The operator would render no pod for what does not fit.
            share = [] if utilization is None else [f"--gpu-memory-utilization={utilization}"]
            yield {
                "id": case.id,
                "heldOut": case.held_out,
                "speeds": case.speeds,
                "prompt": case.prompt,
                "limitSeconds": max(case.limit_seconds, _SPEEDS_SECONDS if case.speeds else 0),
                "config": case.config(),
                "arguments": [*container["args"], *share],
                "environment": _literal_environment(container),
                "question": self.question(case, utilization),
            }

    def travelling_server(self) -> dict[str, Any]:
        """What serve.py reads."""
        config = models()[self.serve.model].config
        name, load_from = self.serve.name, f"/models/{self.serve.name}"
        spec = {
            "model": {"source": {"inline": {"config": config, "loadFrom": load_from}}},
            "workload": self.serve.workload,
            "replicas": 1,
            "engine": {"vllm": {"version": self.vllm_version, "env": _variables(self.environment)}},
        }
        container = _plan_containers([_object(name, spec)])[name]
        return {
            "servedName": name,
            "config": config,
            "workload": self.serve.workload,
            "command": container["command"],
            "arguments": container["args"],
            "environment": _literal_environment(container),
            "tokenizer": _byte_tokenizer(),
        }

    def _inference_deployment(self, case: Case) -> dict[str, Any]:
        source = {"inline": {"config": case.config(), "loadFrom": f"/models/{case.id}"}}
        vllm = {
            "version": self.vllm_version,
            "extraArgs": [*case.extra_args, *_RANDOM_WEIGHTS],
            "enforceEager": case.eager,
            "env": _variables(self.environment | case.environment),
        }
        spec = {
            "model": {"source": source},
            "workload": {"maxModelLen": case.max_model_len},
            "kvCacheDtype": case.cache_dtype,
            "placement": {"tightFit": "Accept"},
            "replicas": 1,
            "engine": {"vllm": vllm},
        }
        return _object(case.object_name, spec)


def load_measurement() -> Measurement:
    """Read cases.yaml."""
    return Measurement.model_validate(yaml.safe_load(CASES.read_text()))


def main() -> None:
    """Write cases.jsonl and serve.json."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder to write to")
    parser.add_argument("--left", action="store_true", help="only cases without a record")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    measurement = load_measurement()
    recorded = {start.case.id for start in hardware_starts()} if asked.left else set()
    cases = [case for case in measurement.cases if case.id not in recorded]
    lines = [json.dumps(case) for case in measurement.travelling_cases(cases)]
    (asked.output / "cases.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (asked.output / "serve.json").write_text(json.dumps(measurement.travelling_server()))
    print(f"{len(lines)} cases in {asked.output / 'cases.jsonl'}")


def _fit(question: dict[str, Any]) -> dict[str, Any]:
    """What `tonnage fit` answers to one question."""
    with TemporaryDirectory() as folder:
        batch = Path(folder) / "batch.jsonl"
        batch.write_text(json.dumps(question) + "\n")
        answer: dict[str, Any] = json.loads(_run_tonnage("fit", "--batch", str(batch)))
    return answer


def _plan_containers(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The container of vLLM that `tonnage plan` renders for each object, by the object's name."""
    labels = H200 | {"nvidia.com/gpu.count": "1"}
    nodes = [nvidia_node(f"node-{number}", labels, 1) for number in range(len(objects))]
    with TemporaryDirectory() as folder:
        wanted, fleet = Path(folder) / "objects.json", Path(folder) / "nodes.json"
        wanted.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        fleet.write_text(json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": nodes}))
        printed = _run_tonnage("plan", "-f", str(wanted), "--nodes", str(fleet), "-o", "json")
    containers = {}
    for item in json.loads(printed)["items"]:
        deployments = [m for m in item["manifests"] if m["kind"] == "Deployment"]
        if not deployments:
            conditions = json.dumps(item["status"]["conditions"], indent=1)
            raise SystemExit(f"{item['name']} was not placed: {conditions}")
        containers[item["name"]] = deployments[0]["spec"]["template"]["spec"]["containers"][0]
    return containers


def _run_tonnage(*arguments: str) -> str:
    output = io.StringIO()
    with redirect_stdout(output):
        tonnage(list(arguments))
    return output.getvalue()


def _object(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def _variables(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _literal_environment(container: dict[str, Any]) -> dict[str, str]:
    """The variables of a container that have a value of their own."""
    return {v["name"]: v["value"] for v in container.get("env", []) if "value" in v}


def _byte_tokenizer() -> dict[str, str]:
    """The files of a tokenizer whose tokens are the 256 bytes."""
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "ByteFallback"},
        "model": {
            "type": "BPE",
            "vocab": {f"<0x{byte:02X}>": byte for byte in range(256)},
            "merges": [],
            "byte_fallback": True,
        },
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192}
    return {"tokenizer.json": json.dumps(tokenizer), "tokenizer_config.json": json.dumps(config)}


if __name__ == "__main__":
    main()
