"""Everything that reads what strangers write, in one table: a new reader belongs in it."""

from __future__ import annotations

import base64
import json
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.golden.render.inputs import make_deployment, make_spec
from tests.support.engines.shapes import CONFIGS
from tests.support.in_memory.cluster import spec_of
from tonnage.api.model import ConfigMapSource
from tonnage.api.names import (
    ANNOTATION_JOB_INPUTS,
    ANNOTATION_MODEL_COMMIT,
    ANNOTATION_POD_TEMPLATE,
    ANNOTATION_RENDERED_FROM,
)
from tonnage.api.packed import pack, unpack
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.api.text import digest
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.adapter import parse_adapter
from tonnage.checkpoint.facts import checkpoint_from_config_map, checkpoint_from_inline
from tonnage.checkpoint.kept_facts import decode_adapters, decode_facts
from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.safetensors.headers import (
    parse_bytes_by_dtype,
    parse_header,
    parse_index,
    parse_table,
)
from tonnage.checkpoint.shape import parse_config_text
from tonnage.cli.errors import InputError
from tonnage.cli.fit.case import parse_case
from tonnage.cli.sources.documents import load_documents
from tonnage.cli.sources.dump import Dump
from tonnage.cli.sources.fleet_files import read_fleet
from tonnage.controller.start_reader import WHOLE_BYTES
from tonnage.engines.errors import RenderError
from tonnage.fit.calibration.entries import read_entries
from tonnage.fit.context import override_context
from tonnage.fit.options import InvalidOptionError, engine_options
from tonnage.fleet.devices.resources import as_mapping
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import FleetSnapshot
from tonnage.fleet.nodes.affinity import read_pod_affinity
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.fleet.pools.declared import read_declared_pool
from tonnage.informers.owners import owner_keys
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS
from tonnage.kube.objects import ObjectParser
from tonnage.kube.protocol import ObjectParts, TransientError
from tonnage.kube.responses import parse_error, parse_object
from tonnage.kube.rights import Right
from tonnage.reconcile.observation.children import read_child
from tonnage.reconcile.observation.namespace_limits import (
    read_limit_ranges,
    read_pod_security,
    read_quotas,
)
from tonnage.reconcile.observation.optional.download_jobs import DownloadJob
from tonnage.reconcile.observation.optional.weights import kept_commit
from tonnage.reconcile.observation.pods.scheduler_message import read_verdict
from tonnage.reconcile.observation.template_record import read_record, read_recorded_at
from tonnage.reconcile.rollout.job_inputs import has_other_inputs
from tonnage.reconcile.scheduling.reservations import read_reservations
from tonnage.telemetry.download_progress import read_download
from tonnage.telemetry.pod_metrics import read_page
from tonnage.telemetry.series import NotUnderstoodError, read_vector
from tonnage.telemetry.served_adapters import read_models
from tonnage.telemetry.startup_log import find_cause, read_shortfall
from tonnage.telemetry.startup_progress import read_progress
from tonnage.workloads.controller_revision import read_templates
from tonnage.workloads.pod.namespace_resources import explain_limit_ranges
from tonnage.workloads.pod.template import check_template

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CATALOG = load_catalog()
PAGE = Path("tests/data/vllm-metrics/after-requests.txt").read_bytes()


@dataclass(frozen=True)
class Reader:
    """`read` takes the bytes of a stranger; it raises one of `errors` or nothing at all. `of` are
    the modules that parse for it, `samples` are texts it understands, as data."""

    read: Callable[[bytes], object]
    of: tuple[str, ...]
    samples: tuple[Any, ...] = ()
    errors: tuple[type[Exception], ...] = ()


def _object(read: Callable[[Any], object]) -> Callable[[bytes], object]:
    """A reader of what somebody else has parsed: an API server, or the client of Prometheus."""

    def read_parsed(text: bytes) -> object:
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return read(parsed)

    return read_parsed


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda text: read(text.decode(errors="replace"))


def _header(text: bytes) -> object:
    table = parse_header(len(text).to_bytes(8, "little") + text)
    return make_checkpoint(QUANTIZED, table)


def _index(text: bytes) -> object:
    return make_checkpoint(QUANTIZED, index=parse_index(text))


def _config_map(text: str) -> object:
    data = {"config.json": json.dumps(LLAMA), "weightsBytes": text}
    return checkpoint_from_config_map(ConfigMapSource(name="facts"), data)


def _spec(raw: Any) -> object:
    spec = parse_spec(raw)
    check_template(spec)
    inline = spec.model.source.inline
    return inline and checkpoint_from_inline(inline)


def _overrides(text: str) -> object:
    spec = parse_spec({**SPEC, "engine": {"vllm": {"extraArgs": [f"--hf-overrides={text}"]}}})
    overrides = engine_options(spec, CATALOG).context_overrides
    return override_context(parse_config_text(json.dumps(LLAMA)), overrides)


def _loader(text: str) -> object:
    flags = ["--load-format=runai_streamer", f"--model-loader-extra-config={text}"]
    spec = make_spec(engine={"vllm": {"extraArgs": flags}})
    check_template(spec)
    return make_deployment(spec)


def _download(text: str) -> object:
    return read_download(text), read_download(f"progress: {text}")


def _fleet_file(text: bytes) -> object:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(text)
        file.flush()
        snapshot = read_fleet(Dump(load_documents(file.name), "default", NOW))
    return build_pools(snapshot, CATALOG)


def _nodes(raw: Any) -> object:
    if not isinstance(raw, dict):
        return None
    return build_pools(FleetSnapshot(nodes=(read_node(raw),), pods=()), CATALOG)


def _pod(raw: Any) -> object:
    return read_gpu_pod(raw) if isinstance(raw, dict) else None


def _limits(raw: Any) -> object:
    if not isinstance(raw, dict):
        return None
    named = {**raw, "metadata": {**as_mapping(raw.get("metadata")), "name": "a"}}
    items = read_limit_ranges([named])
    pod = {"containers": [{"name": "vllm", "resources": {"requests": {"cpu": "1"}}}]}
    return read_quotas([named]), explain_limit_ranges(pod, items), read_pod_security(named)


def _affinity(raw: Any) -> object:
    requirements = read_pod_affinity("test", as_mapping(raw))
    return [(str(one), one.admits("a", {"a": "1"})) for one in requirements]


def _pool(raw: Any) -> object:
    return read_declared_pool(raw) if isinstance(raw, dict) else None


def _kept_facts(text: bytes) -> object:
    """The decoded text, which somebody may have encoded as the operator does."""
    encoded = base64.b64encode(zlib.compress(text)).decode()
    return decode_facts(encoded, "acme/llama", "main")


def _kept_adapters(text: bytes) -> object:
    """The same of adapters."""
    return decode_adapters(base64.b64encode(zlib.compress(text)).decode())


def _commit(text: str) -> object:
    """The annotation of a Service that keeps the commit of a cache."""
    model = {
        "source": {"huggingFace": {"repo": "acme/llama"}},
        "cache": {"persistentVolumeClaim": {"claimName": "weights"}},
    }
    metadata = {**DEPLOYMENT["metadata"], "annotations": {ANNOTATION_MODEL_COMMIT: text}}
    return kept_commit(
        parse_spec({**spec_of(), "model": model}), read_child({"metadata": metadata})
    )


def _job_inputs(text: str) -> object:
    def job(annotation: str) -> dict[str, Any]:
        annotations = {ANNOTATION_JOB_INPUTS: annotation}
        return {"metadata": {**DEPLOYMENT["metadata"], "annotations": annotations}}

    return has_other_inputs(DownloadJob(read_child(job(text)), NOW), job(json.dumps(INPUTS)))


def _revision(raw: Any) -> object:
    """The data of a ControllerRevision, which the API server does not check."""
    return read_templates({"data": raw})


def _annotation(key: str) -> Callable[[str], object]:
    """An annotation of a Deployment that the ledger of all namespaces is made of."""

    def read(text: str) -> object:
        metadata = {**DEPLOYMENT["metadata"], "annotations": {f"tonnage.dev/{key}": text}}
        (reservation,) = read_reservations([{**DEPLOYMENT, "metadata": metadata}])
        return repr(reservation) + str(reservation.footprint.gpus * reservation.replicas * 1.0)

    return read


def _record(text: str) -> object:
    """Read a text as what a template was rendered from, then as the template."""
    packed = pack(TEMPLATE) or ""
    return [
        read_record({ANNOTATION_RENDERED_FROM: text, ANNOTATION_POD_TEMPLATE: packed}),
        read_recorded_at({ANNOTATION_RENDERED_FROM: text}),
        unpack(text),
    ]


def _answer(text: bytes) -> object:
    parse_error("get", Right("get", "", "pods", None), 403, {"Retry-After": "x"}, text)
    return parse_object("get", text)


def _keys(raw: Any) -> object:
    if not isinstance(raw, dict):
        return None
    return [owner_keys(kind, raw) for kind in (PODS, DEPLOYMENTS, INFERENCE_DEPLOYMENTS)]


def _series(raw: Any) -> object:
    return read_vector(raw, 1_800_000_000.0)


def _log(text: str) -> object:
    cause = find_cause(text[-65_536:])
    return cause and read_shortfall(cause.message)


def _start(text: str) -> object:
    """With times, as the API server sends it, and with what the text has in their places."""
    text = text[-WHOLE_BYTES:]
    timed = "\n".join(f"2026-11-21T02:46:20.1Z {line}" for line in text.split("\n"))
    return read_progress(text), read_progress(timed)


def _verdict(raw: Any) -> object:
    return read_verdict(raw, "amd.com/gpu") if isinstance(raw, str) else None


def _entry(text: str) -> object:
    entries = read_entries({"a": text}, CATALOG.accelerators)
    return "".join(entries.problems.values()).encode()


LLAMA = json.loads((CONFIGS / "llama-3.1-8b.json").read_text("utf-8"))
FP8 = {
    **LLAMA,
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "ignore": ["lm_head", "re:.*self_attn.*"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8}}},
    },
}
QUANTIZED = parse_config_text(json.dumps(FP8))
TENSOR = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}
DEPLOYMENT = {
    "metadata": {
        "name": "llama-mi300x",
        "namespace": "chat",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"tonnage.dev/inferencedeployment": "llama"},
        "ownerReferences": [{"kind": "InferenceDeployment", "uid": "o", "controller": True}],
    },
    "spec": {"replicas": 2},
}
WITH_POD_TEMPLATE = spec_of(
    podTemplate={
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "vllm", "resources": {"limits": {"memory": "1Gi"}}}],
            "securityContext": {"runAsUser": None, "$patch": "replace"},
            "volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
    },
)
SPEC = spec_of(
    replicas=None,
    scaling={"minReplicas": 1, "maxReplicas": 2},
    placement={"accelerators": ["mi300x"], "poolSelector": {"matchLabels": {"a": "b"}}},
    engine={"vllm": {"extraArgs": ["--seed=1"], "env": [{"name": "A", "value": "b"}]}},
    template={
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}],
            "volumeMounts": [{"name": "a", "mountPath": "/a"}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "resources": {"requests": {"cpu": "1"}},
        },
    },
)
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "gpu-1",
        "annotations": {"a": "b"},
        "labels": {
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
            "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.count": "8",
            "kubernetes.io/arch": "amd64",
        },
    },
    "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "a", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"nvidia.com/gpu": "8"},
        "allocatable": {"nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"operatingSystem": "linux"},
    },
}
AMD_NODE = {
    **NODE,
    "metadata": {
        "name": "gpu-2",
        "labels": {
            "amd.com/gpu.device-id": "74a1",
            "amd.com/gpu.vram": "192G",
            "amd.com/gpu.cu-count": "304",
            "beta.amd.com/gpu.product-name.AMD_Instinct_MI300X_OAM": "8",
            "amd.com/compute-memory-partition": "cpx_nps4",
        },
    },
    "status": {"allocatable": {"amd.com/gpu": "8"}, "capacity": {"amd.com/gpu": 8}},
}
POD = {
    "metadata": {"name": "a", "namespace": "chat", "uid": "u", "labels": {"a": "b"}},
    "spec": {
        "nodeName": "gpu-1",
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        "initContainers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}],
    },
    "status": {"phase": "Running"},
}
QUOTA = {
    "spec": {"hard": {"requests.amd.com/gpu": "8"}, "scopes": ["NotTerminating"]},
    "status": {"hard": {"requests.amd.com/gpu": "8"}, "used": {"requests.amd.com/gpu": "1"}},
}
LIMIT_RANGE = {
    "spec": {
        "limits": [
            {
                "type": kind,
                "min": {"cpu": "2"},
                "max": {"memory": "8Gi"},
                "default": {"memory": "8Gi"},
                "defaultRequest": {"memory": "8Gi"},
                "maxLimitRequestRatio": {"cpu": "1500m"},
            }
            for kind in ("Container", "Pod")
        ]
    }
}
NAMESPACE = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
AFFINITY = {
    "nodeSelector": {"a": "b"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}],
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": ["a"]}
                        ],
                    }
                ]
            }
        }
    },
}
POOL = {
    "apiVersion": "tonnage.dev/v1alpha1",
    "kind": "AcceleratorPool",
    "metadata": {"name": "a", "labels": {"a": "b"}},
    "spec": {"nodeSelector": {"a": "b"}, "costPerGPUHour": "1.5", "tolerations": [], "env": []},
}
ENTRY = {
    "model": "LlamaForCausalLM-1",
    "weights": "bf16",
    "kvCache": "auto",
    "vllmVersion": "v0.32.0",
    "accelerator": "mi300x",
    "tensorParallelSize": 1,
    "pipelineParallelSize": 1,
    "extraBytes": 1,
    "origin": "Failure",
    "learntOf": "chat/llama",
    "learntOn": "2026-01-01",
}
PLACE = {
    "pool": "amd",
    "accelerator": "mi300x",
    "tensorParallelSize": 2,
    "pipelineParallelSize": 2,
    "maxNumSeqs": 4,
    "gpuMemoryUtilization": 0.9,
    "correctionBytes": 5,
    "beside": True,
}
TEMPLATE = {"metadata": {"labels": {}}, "spec": {"containers": []}}
RENDERED_FROM = {
    "release": "0.32.0",
    "spec": "5e7b7b270d0fa4ca",
    "given": "0b852ade04696866",
    "chosen": "0b852ade04696866",
    "progressDeadlineSeconds": 2295,
    "demand": "1977f1fc59ba1b4b",
    "tokens": 8192,
    "replicas": 1,
    "template": digest(TEMPLATE),
    "recordedAt": 1,
}
MOVE = {"reason": "Fallback", "from": "amd", "at": "2026-01-01T00:00:00Z", "why": "a"}
SERIES = [{"metric": {"pod": "a"}, "value": [1_800_000_000, "1"]}]
CASE = {"id": "a", "model": {"config": LLAMA}, "accelerator": "mi300x", "engine": {"extraArgs": []}}
STATUS = {
    "kind": "Status",
    "message": 'pods "a" is forbidden: User "u" cannot get resource',
    "details": {"name": "a", "causes": [{"field": "metadata.uid"}]},
}

VERDICT = "0/9 nodes are available: 4 Insufficient cpu, 5 Insufficient amd.com/gpu. preemption: 0/9"
LISTED = {"metadata": {"name": "a", "namespace": "chat", "uid": "u", "resourceVersion": "7"}}
LIST = {"metadata": {"continue": "t", "resourceVersion": "9"}, "items": [LISTED]}

KEPT_FACTS: Mapping[str, Any] = {
    "repo": "acme/llama",
    "revision": "main",
    "commit": "0" * 40,
    "config": json.dumps(LLAMA),
    "tensors": json.dumps([["model.layers.*.a.weight", "U8", [2], [[0, 3]], 1]]),
    "weightsBytes": None,
}

INPUTS = {"pool": "l40s", "engine": "vllm", "digest": "5e7b7b270d0fa4ca"}
COMMIT = {"repo": "acme/llama", "revision": "main", "upgradedAt": None, "commit": "0" * 40}
MODELS = {"data": [{"id": "llama"}, {"id": "tuned", "root": "/adapters/tuned", "parent": "llama"}]}
_GROUP_TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "args": ["m"]}]},
}
REVISION = {
    "spec": {
        "leaderWorkerTemplate": {
            "$patch": "replace",
            "size": 2,
            "leaderTemplate": _GROUP_TEMPLATE,
            "workerTemplate": _GROUP_TEMPLATE,
        }
    }
}

ADAPTER: Mapping[str, Any] = {
    "peft_type": "LORA",
    "r": 16,
    "rank_pattern": {"q_proj": 8},
    "lora_alpha": 32,
    "target_modules": ["q_proj", "v_proj"],
    "base_model_name_or_path": "acme/llama",
}

KEPT_ADAPTERS = [
    {"repo": "acme/tuned", "revision": "main", "commit": "0" * 40, "config": json.dumps(ADAPTER)}
]

READERS: Mapping[str, Reader] = {
    "config.json": Reader(
        parse_config_text,
        ("checkpoint/shape.py", "checkpoint/fields.py"),
        (LLAMA, FP8),
        (CheckpointError,),
    ),
    "adapter_config.json": Reader(
        parse_adapter, ("checkpoint/fields.py",), (ADAPTER,), (CheckpointError,)
    ),
    "the header of a safetensors file": Reader(
        _header,
        ("checkpoint/safetensors/headers.py", "checkpoint/hub/headers.py"),
        ({"__metadata__": {"a": "b"}, "model.layers.0.mlp.gate.weight": TENSOR},),
        (CheckpointError,),
    ),
    "the start of a safetensors file": Reader(
        parse_header, ("checkpoint/safetensors/headers.py",), errors=(CheckpointError,)
    ),
    "the index of a checkpoint": Reader(
        _index,
        ("checkpoint/safetensors/headers.py",),
        ({"metadata": {"total_size": 2}, "weight_map": {"model.layers.0.a.b": "a.safetensors"}},),
        (CheckpointError,),
    ),
    "a table of tensors": Reader(
        lambda text: make_checkpoint(QUANTIZED, parse_table(text)),
        ("checkpoint/safetensors/headers.py",),
        ([["model.layers.*.a.weight", "U8", [2], [[0, 3]], 1]],),
        (CheckpointError,),
    ),
    "sizes by dtype": Reader(
        parse_bytes_by_dtype,
        ("checkpoint/safetensors/headers.py",),
        ({"BF16": 2},),
        (CheckpointError,),
    ),
    "the size of the weights in a ConfigMap": Reader(
        _text(_config_map), ("checkpoint/facts.py",), (141_107_412_992,), (CheckpointError,)
    ),
    "the spec of an InferenceDeployment": Reader(
        _object(_spec),
        ("api/parse.py",),
        (SPEC, WITH_POD_TEMPLATE),
        (InvalidSpecError, RenderError, CheckpointError),
    ),
    "the settings of a loader": Reader(
        _text(_loader),
        ("engines/vllm/streaming.py",),
        ({"distributed": True, "concurrency": 16, "memory_limit": -1},),
        (RenderError, InvalidSpecError),
    ),
    "the log of a download": Reader(_text(_download), ("telemetry/download_progress.py",)),
    "overrides of config.json": Reader(
        _text(_overrides),
        ("fit/flag_values.py", "fit/context.py"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}, "max_position_embeddings": 9},),
        (InvalidSpecError, InvalidOptionError, CheckpointError),
    ),
    "an AcceleratorPool": Reader(_object(_pool), ("api/parse.py",), (POOL,), (InvalidSpecError,)),
    "a Node": Reader(_object(_nodes), (), (NODE, AMD_NODE)),
    "a Pod": Reader(_object(_pod), (), (POD,)),
    "what limits a namespace": Reader(_object(_limits), (), (QUOTA, LIMIT_RANGE, NAMESPACE)),
    "a node selector": Reader(_object(_affinity), (), (AFFINITY,)),
    "an object that a watch tells of": Reader(_object(_keys), (), (DEPLOYMENT, POD)),
    "an annotation of a place": Reader(
        _text(_annotation("placement")), ("reconcile/observation/children.py",), (PLACE,)
    ),
    "an annotation of a model's facts": Reader(
        _text(lambda text: decode_facts(text, "acme/llama", "main")), ("checkpoint/kept_facts.py",)
    ),
    "a model's facts in an annotation": Reader(
        _kept_facts, ("checkpoint/kept_facts.py",), (KEPT_FACTS,)
    ),
    "facts of adapters in an annotation": Reader(
        _kept_adapters, ("checkpoint/kept_facts.py",), (KEPT_ADAPTERS,)
    ),
    "an annotation of a commit": Reader(
        _text(_commit), ("reconcile/observation/optional/weights.py",), (COMMIT,)
    ),
    "a ControllerRevision": Reader(
        _object(_revision), ("workloads/controller_revision.py",), (REVISION,)
    ),
    "the models of a pod": Reader(
        lambda text: read_models(text, "llama"), ("telemetry/served_adapters.py",), (MODELS,)
    ),
    "an annotation of a move": Reader(
        _text(_annotation("moved")), ("reconcile/observation/migration.py",), (MOVE,)
    ),
    "the record of a template": Reader(
        _text(_record),
        ("api/packed.py", "reconcile/observation/template_record.py"),
        (RENDERED_FROM,),
    ),
    "the inputs of a download": Reader(
        _text(_job_inputs), ("api/text.py", "reconcile/rollout/job_inputs.py"), (INPUTS,)
    ),
    "a file for the command line": Reader(
        _fleet_file,
        ("cli/sources/documents.py", "cli/sources/shapes/field_types.py"),
        (NODE, POOL, {"kind": "Pod", **POD}, {"kind": "Deployment", **DEPLOYMENT}),
        (InputError,),
    ),
    "a case of a batch": Reader(parse_case, ("cli/fit/case.py",), (CASE,), (InputError,)),
    "an entry of the corrections": Reader(_text(_entry), ("fit/calibration/entries.py",), (ENTRY,)),
    "an answer of an API server": Reader(
        _answer, ("kube/responses.py",), (STATUS,), (TransientError,)
    ),
    "a list of partial objects": Reader(
        ObjectParser(PODS, ObjectParts.PARTIAL).page,
        ("kube/objects.py",),
        (LIST,),
        (TransientError,),
    ),
    "an event of a watch": Reader(
        ObjectParser(PODS, ObjectParts.PARTIAL).event,
        ("kube/objects.py",),
        ({"type": "ADDED", "object": LISTED}, {"type": "ERROR", "object": STATUS}),
        (TransientError,),
    ),
    "a list of full objects": Reader(
        ObjectParser(INFERENCE_DEPLOYMENTS, ObjectParts.FULL).page,
        ("kube/objects.py",),
        (LIST,),
        (TransientError,),
    ),
    "a result of Prometheus": Reader(_object(_series), (), (SERIES,), (NotUnderstoodError,)),
    "a page of metrics": Reader(read_page, ("telemetry/pod_metrics.py",)),
    "a message of a scheduler": Reader(_object(_verdict), (), (VERDICT,)),
    "a log of vLLM": Reader(_text(_log), ("kube/client.py",)),
    "the log of a start": Reader(_text(_start), ("telemetry/startup_progress.py",)),
}
