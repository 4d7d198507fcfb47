"""The manifests say what the operator needs, and no more."""

from pathlib import Path

import pytest
import yaml

from tonnage.api.names import ACCELERATOR_POOL, API_VERSION, INFERENCE_DEPLOYMENT
from tonnage.api.parse import parse_model, parse_spec
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.kube import kinds
from tonnage.kube.protocol import Kind

ROOT = Path(__file__).parents[2]
BASE = ROOT / "manifests" / "base"
SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
NEIGHBOURS = sorted((ROOT / "manifests" / "neighbours").glob("*.yaml"))
POOL_RULE = ROOT / "manifests" / "components" / "inference-pool" / "rule.yaml"
ALL_KINDS = [kind for kind in vars(kinds).values() if isinstance(kind, Kind)]


SCALERS = {"HorizontalPodAutoscaler", "ScaledObject"}


def load(path):
    return [body for body in yaml.safe_load_all(path.read_text(encoding="utf-8")) if body]


def base_objects():
    listed = load(BASE / "kustomization.yaml")[0]["resources"]
    return [body for name in listed for body in load(BASE / name)]


def find(kind):
    found = [body for body in base_objects() if body["kind"] == kind]
    assert len(found) == 1
    return found[0]


def granted():
    """(group, resource) to verbs, over the cluster role and the role of the own namespace."""
    rules = find("ClusterRole")["rules"] + find("Role")["rules"]
    return {
        (group, resource): set(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_kustomization_lists_every_file_beside_it():
    listed = load(BASE / "kustomization.yaml")[0]["resources"]
    beside = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(listed) == beside


def test_the_folder_of_crds_holds_nothing_that_kubectl_apply_would_stumble_over():
    kinds = [body["kind"] for path in (ROOT / "crds").iterdir() for body in load(path)]
    assert kinds == ["CustomResourceDefinition"] * 2


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_is_what_the_models_accept(path):
    bodies = load(path)
    assert bodies
    for body in bodies:
        assert body["apiVersion"] == API_VERSION
        if body["kind"] == INFERENCE_DEPLOYMENT:
            parse_spec(body["spec"])
        else:
            assert body["kind"] == ACCELERATOR_POOL
            parse_model(AcceleratorPoolSpec, body["spec"], "spec")


def test_samples_can_be_applied_together():
    names = [(body["kind"], body["metadata"]["name"]) for path in SAMPLES for body in load(path)]
    assert len(names) == len(set(names))


def test_every_kind_the_operator_speaks_of_is_granted_and_no_other():
    spoken_of = {(kind.group, kind.plural) for kind in ALL_KINDS if kind != kinds.INFERENCE_POOLS}
    assert {(group, name) for group, name in granted() if "/" not in name} == spoken_of


def test_inference_pools_are_granted_by_their_component_alone_and_never_listed():
    ((patch,),) = load(POOL_RULE)
    pools = kinds.INFERENCE_POOLS
    assert patch["value"] == {
        "apiGroups": [pools.group],
        "resources": [pools.plural],
        "verbs": ["get", "create", "patch", "delete"],
    }


def test_objects_beside_neighbours_are_what_the_models_accept_and_refer_to():
    bodies = [body for path in [*SAMPLES, *NEIGHBOURS] for body in load(path)]
    named = [body for body in bodies if body["kind"] == INFERENCE_DEPLOYMENT]
    names = {body["metadata"]["name"] for body in named}
    assert len(names) == len(named)
    for body in named:
        parse_spec(body["spec"])
    scaled = [body["spec"]["scaleTargetRef"] for body in bodies if body["kind"] in SCALERS]
    assert len(scaled) == 2
    for target in scaled:
        assert (target["apiVersion"], target["kind"]) == (API_VERSION, INFERENCE_DEPLOYMENT)
        (found,) = (body for body in named if body["metadata"]["name"] == target["name"])
        assert "replicas" in found["spec"]


def test_no_rule_has_a_wildcard():
    for (group, resource), verbs in granted().items():
        assert "*" not in {group, resource, *verbs}


WRITES = {"create", "update", "patch", "delete", "deletecollection"}


@pytest.mark.parametrize(
    ("resource", "want_writes"),
    [
        (("tonnage.dev", "inferencedeployments"), set()),
        (("tonnage.dev", "inferencedeployments/status"), {"patch"}),
        (("tonnage.dev", "acceleratorpools"), {"create", "patch", "delete"}),
        (("tonnage.dev", "acceleratorpools/status"), {"patch"}),
        (("apps", "deployments"), {"create", "patch", "delete"}),
        (("", "services"), {"create", "patch"}),
        (("", "pods"), set()),
        (("", "pods/log"), set()),
        (("", "nodes"), set()),
        (("", "configmaps"), set()),
        (("", "secrets"), set()),
        (("events.k8s.io", "events"), {"create", "patch"}),
        (("coordination.k8s.io", "leases"), {"create", "update"}),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_writes_are_granted_exactly_where_the_design_has_them(resource, want_writes):
    assert granted()[resource] & WRITES == want_writes


def test_secrets_and_config_maps_are_read_by_name_only():
    assert granted()["", "secrets"] == {"get"}
    assert granted()["", "configmaps"] == {"get"}


def test_leases_are_granted_in_the_own_namespace_only():
    resources = [name for rule in find("ClusterRole")["rules"] for name in rule["resources"]]
    assert "leases" not in resources
    assert find("Role")["metadata"]["namespace"] == find("ServiceAccount")["metadata"]["namespace"]


def test_bindings_bind_the_service_account_to_the_roles():
    account = find("ServiceAccount")["metadata"]
    subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    for binding, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        assert find(binding)["subjects"] == [subject]
        assert find(binding)["roleRef"]["name"] == find(role)["metadata"]["name"]


def test_the_operators_pods_pass_pod_security_restricted():
    pod = find("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(set(volume) == {"name", "emptyDir"} for volume in pod["volumes"])


def test_selectors_select_the_operators_pods():
    deployment = find("Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    spread = deployment["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]
    budget = find("PodDisruptionBudget")["spec"]["selector"]
    for selector in (deployment["selector"], spread, budget):
        assert selector["matchLabels"].items() <= labels.items()


def test_the_image_has_the_version_of_the_project():
    from tonnage import __version__

    (container,) = find("Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"tonnage:{__version__}"
