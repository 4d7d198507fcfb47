"""The CustomResourceDefinitions, generated from the pydantic models.

Kubernetes accepts a structural subset of OpenAPI v3: no references, no unions. This module converts
pydantic's JSON schema to that subset and adds names, printer columns and subresources.
"""

from copy import deepcopy
from typing import Any, Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import ACCELERATOR_POOL, GROUP, INFERENCE_DEPLOYMENT, VERSION
from tonnage.api.pool import AcceleratorPoolSpec, AcceleratorPoolStatus
from tonnage.api.schema import ApiModel
from tonnage.api.status import UNREPORTED, InferenceDeploymentStatus

Schema = dict[str, Any]

_KEPT: Final = {
    "type", "description", "properties", "required", "items", "enum", "pattern", "minimum",
    "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
    "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-map-type",
}  # fmt: skip

_REFERENCES: Final = ("$ref", "anyOf", "oneOf")

_NAME_RULE: Final[Schema] = {
    "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
    " && size(self.metadata.name) <= 63",
    "message": "metadata.name must be a DNS label: at most 63 lower-case letters, digits and '-',"
    " starting with a letter; it names the Service and is a label of the pods",
}


def crd_manifests() -> dict[str, Schema]:
    """The CRDs by file name, as `tonnage crds` writes them."""
    return {
        f"{GROUP}_inferencedeployments.yaml": _inference_deployment_crd(),
        f"{GROUP}_acceleratorpools.yaml": _accelerator_pool_crd(),
    }


def structural_schema(model: type[ApiModel]) -> Schema:
    """The model's schema as the API server accepts it: no references, titles or nulls.

    Defaults are kept for scalars only. With a default on an object, the API server would write that
    object into every spec without it.
    """
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def _structural(schema: Schema, definitions: Schema) -> Schema:
    merged = _resolve(schema, definitions)
    # A copy, because a model that is used twice must not become a YAML alias. An empty map, which
    # the API server drops, would be drift for Argo CD.
    kept = {key: deepcopy(value) for key, value in merged.items() if key in _KEPT and value != {}}
    if "description" in kept:
        kept["description"] = " ".join(str(kept["description"]).split())
    if "exclusiveMinimum" in merged:
        kept |= {"minimum": merged["exclusiveMinimum"], "exclusiveMinimum": True}
    if "exclusiveMaximum" in merged:
        kept |= {"maximum": merged["exclusiveMaximum"], "exclusiveMaximum": True}
    if "const" in merged:
        kept["enum"] = [merged["const"]]
    if isinstance(merged.get("default"), str | int | float | bool):
        kept["default"] = merged["default"]
    if "properties" in kept:
        kept["properties"] = {
            name: _structural(value, definitions) for name, value in merged["properties"].items()
        }
    if "items" in merged:
        kept["items"] = _structural(merged["items"], definitions)
    # A structural schema has no patterns of keys: only the operator's own models check them.
    values = next(iter(merged.get("patternProperties", {}).values()), None)
    values = merged.get("additionalProperties") if values is None else values
    if isinstance(values, dict):
        kept["additionalProperties"] = _structural(values, definitions)
    return kept


def _resolve(schema: Schema, definitions: Schema) -> Schema:
    """Replace a reference, or a union with null, with its schema; outer keys take precedence.

    A union of other types has no type: only the operator's own models check its values.
    """
    outer = {key: value for key, value in schema.items() if key not in _REFERENCES}
    if "$ref" in schema:
        inner = definitions[schema["$ref"].rsplit("/", 1)[1]]
        return _resolve(inner, definitions) | outer
    if "anyOf" in schema or "oneOf" in schema:
        choices = schema.get("anyOf") or schema["oneOf"]
        options = [option for option in choices if option != {"type": "null"}]
        return _resolve(options[0], definitions) | outer if len(options) == 1 else outer
    return schema


def _inference_deployment_crd() -> Schema:
    return _crd(
        kind=INFERENCE_DEPLOYMENT,
        plural="inferencedeployments",
        short_name="infd",
        # A workload, so `kubectl get all` shows it next to its Deployments.
        categories=["tonnage", "all"],
        scope="Namespaced",
        description="InferenceDeployment declares a model and a workload. The operator chooses"
        " a pool of accelerators and reports the reasons in status.",
        spec=structural_schema(InferenceDeploymentSpec),
        status=_status_schema(InferenceDeploymentStatus),
        validations=[_NAME_RULE],
        columns=[
            _column("Ready", "string", _condition("Ready", "status")),
            _column("Pool", "string", ".status.placements[0].pool"),
            _column("Accelerator", "string", ".status.placements[0].accelerator"),
            _column("TP", "integer", ".status.placements[0].tensorParallelSize"),
            _column("Replicas", "integer", ".status.replicas"),
            _column("Reason", "string", _condition("Ready", "reason")),
            _column("Age", "date", ".metadata.creationTimestamp"),
            _column("Desired", "integer", ".status.desiredReplicas", wide=True),
            _column("Architecture", "string", ".status.model.architecture", wide=True),
            _column("Cost/h", "string", ".status.placements[0].costPerHour", wide=True),
            _column("Message", "string", _condition("Ready", "message"), wide=True),
        ],
        scale={
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    )


def _accelerator_pool_crd() -> Schema:
    return _crd(
        kind=ACCELERATOR_POOL,
        plural="acceleratorpools",
        short_name="apool",
        # Not `all`, which is about the objects of one namespace.
        categories=["tonnage"],
        scope="Cluster",
        description="AcceleratorPool is a set of nodes with the same accelerator, declared by a"
        " platform team or discovered by the operator.",
        spec=structural_schema(AcceleratorPoolSpec),
        status=_status_schema(AcceleratorPoolStatus),
        validations=[],
        columns=[
            _column("Accelerator", "string", ".status.accelerator"),
            _column("Nodes", "integer", ".status.nodes"),
            _column("GPUs", "integer", ".status.gpus.total"),
            _column("Allocatable", "integer", ".status.gpus.allocatable"),
            _column("Free", "integer", ".status.gpus.free"),
            _column("Largest", "integer", ".status.gpus.largestFreeBlock"),
            _column("Ready", "string", _condition("Ready", "status")),
            _column("Age", "date", ".metadata.creationTimestamp"),
            _column("Message", "string", _condition("Ready", "message"), wide=True),
        ],
        scale=None,
    )


def _status_schema(model: type[ApiModel]) -> Schema:
    """The schema of a status in which server-side apply replaces each object as a whole, except
    conditions.

    Only the operator writes these fields, so the API server need not track an owner for each.
    """
    schema = structural_schema(model)
    for name, value in schema["properties"].items():
        element = value["items"] if value.get("x-kubernetes-list-type") == "map" else value
        if name != "conditions" and element["type"] == "object":
            element["x-kubernetes-map-type"] = "atomic"
    return schema


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


def _column(name: str, kind: str, path: str, *, wide: bool = False) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path} | ({"priority": 1} if wide else {})


def _crd(
    *,
    kind: str,
    plural: str,
    short_name: str,
    categories: list[str],
    scope: str,
    description: str,
    spec: Schema,
    status: Schema,
    validations: list[Schema],
    columns: list[Schema],
    scale: Schema | None,
) -> Schema:
    schema: Schema = {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status | {"default": dict(UNREPORTED)},
        },
    }
    if validations:
        schema["x-kubernetes-validations"] = validations
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short_name],
                "categories": categories,
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}} | ({"scale": scale} if scale else {}),
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }
