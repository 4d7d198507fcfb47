"""The manifests say what the operator needs, and no more."""

from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest
import yaml

from tonnage.api.names import (
    ACCELERATOR_POOL,
    API_VERSION,
    CORRECTIONS_CONFIG_MAP,
    INFERENCE_DEPLOYMENT,
)
from tonnage.api.parse import parse_model, parse_spec
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.kube import kinds
from tonnage.kube.protocol import Kind

ROOT = Path(__file__).parents[3]
BASE = ROOT / "manifests" / "base"
SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
INTEGRATIONS = sorted((ROOT / "manifests" / "integrations").glob("*.yaml"))
POOL_RULE = ROOT / "manifests" / "components" / "inference-pool" / "rule.yaml"
DOMAIN_RULE = ROOT / "manifests" / "components" / "compute-domains" / "rule.yaml"
ALL_KINDS = [kind for kind in vars(kinds).values() if isinstance(kind, Kind)]


SCALERS = {"HorizontalPodAutoscaler", "ScaledObject"}


def load(path):
    return [body for body in yaml.safe_load_all(path.read_text(encoding="utf-8")) if body]


def base_objects():
    listed = load(BASE / "kustomization.yaml")[0]["resources"]
    return [body for name in listed for body in load(BASE / name)]


def find_all(kind):
    return [body for body in base_objects() if body["kind"] == kind]


def find(kind):
    (manifest,) = find_all(kind)
    return manifest


def verbs_of(rules):
    """(group, resource) to verbs."""
    verbs = defaultdict(set)
    for rule in rules:
        for group, resource in product(rule["apiGroups"], rule["resources"]):
            verbs[group, resource] |= set(rule["verbs"])
    return verbs


def roles(kind):
    """The operator's roles of this kind: those that it is bound to."""
    bound = {binding["roleRef"]["name"] for binding in find_all(f"{kind}Binding")}
    return [role for role in find_all(kind) if role["metadata"]["name"] in bound]


def granted():
    """What the cluster role grants."""
    (role,) = roles("ClusterRole")
    return verbs_of(role["rules"])


def granted_at_home():
    """What the roles of the own namespace grant."""
    return verbs_of(rule for role in roles("Role") for rule in role["rules"])


def test_the_kustomization_lists_every_file_of_its_folder():
    listed = load(BASE / "kustomization.yaml")[0]["resources"]
    present = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(listed) == present


def test_kubectl_can_apply_the_folder_of_crds():
    kinds = [body["kind"] for path in (ROOT / "crds").iterdir() for body in load(path)]
    assert kinds == ["CustomResourceDefinition"] * 2


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_models_accept_every_sample(path):
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


def test_exactly_the_kinds_that_the_operator_uses_are_granted():
    by_components = (
        *(kinds.INFERENCE_POOLS, kinds.COMPUTE_DOMAINS),
        *(kinds.TOKEN_REVIEWS, kinds.SUBJECT_ACCESS_REVIEWS),
    )
    spoken_of = {(kind.group, kind.plural) for kind in ALL_KINDS if kind not in by_components}
    both = {*granted(), *granted_at_home()}
    assert {(group, name) for group, name in both if "/" not in name} == spoken_of


def test_only_the_component_grants_inference_pools_and_never_list():
    ((patch,),) = load(POOL_RULE)
    pools = kinds.INFERENCE_POOLS
    assert patch["value"] == {
        "apiGroups": [pools.group],
        "resources": [pools.plural],
        "verbs": ["get", "create", "patch", "delete"],
    }


def test_only_the_component_grants_compute_domains_as_the_base_grants_claim_templates():
    ((patch,),) = load(DOMAIN_RULE)
    domains, templates = kinds.COMPUTE_DOMAINS, kinds.RESOURCE_CLAIM_TEMPLATES
    assert (patch["value"]["apiGroups"], patch["value"]["resources"]) == (
        [domains.group],
        [domains.plural],
    )
    assert set(patch["value"]["verbs"]) == granted()[templates.group, templates.plural]


def test_samples_of_integrations_are_valid_and_refer_to_existing_objects():
    bodies = [body for path in [*SAMPLES, *INTEGRATIONS] for body in load(path)]
    named = [body for body in bodies if body["kind"] == INFERENCE_DEPLOYMENT]
    names = {body["metadata"]["name"] for body in named}
    assert len(names) == len(named)
    for body in named:
        parse_spec(body["spec"])
    scaled = [body["spec"]["scaleTargetRef"] for body in bodies if body["kind"] in SCALERS]
    assert len(scaled) == 3
    for target in scaled:
        assert (target["apiVersion"], target["kind"]) == (API_VERSION, INFERENCE_DEPLOYMENT)
        (manifest,) = (body for body in named if body["metadata"]["name"] == target["name"])
        assert "replicas" in manifest["spec"]


def test_no_rule_has_a_wildcard():
    for (group, resource), verbs in [*granted().items(), *granted_at_home().items()]:
        assert "*" not in {group, resource, *verbs}


WRITES = {"create", "update", "patch", "delete", "deletecollection"}


@pytest.mark.parametrize(
    ("resource", "want_writes"),
    [
        (("tonnage.dev", "inferencedeployments"), {"create", "patch", "delete"}),
        (("tonnage.dev", "inferencedeployments/status"), {"patch"}),
        (("tonnage.dev", "acceleratorpools"), {"create", "patch", "delete"}),
        (("tonnage.dev", "acceleratorpools/status"), {"patch"}),
        (("apps", "deployments"), {"create", "patch", "delete"}),
        (("", "services"), {"create", "patch", "delete"}),
        (("", "pods"), set()),
        (("", "pods/log"), set()),
        (("", "nodes"), set()),
        (("", "configmaps"), set()),
        (("", "secrets"), set()),
        (("events.k8s.io", "events"), {"create", "patch"}),
        (("coordination.k8s.io", "leases"), set()),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_writes_are_granted_only_for_written_kinds(resource, want_writes):
    assert granted()[resource] & WRITES == want_writes


def test_secrets_and_config_maps_are_read_by_name_only():
    assert granted()["", "secrets"] == {"get"}
    assert granted()["", "configmaps"] == {"get"}


def test_secrets_are_read_by_the_name_that_the_samples_have_and_by_no_other():
    rules = [rule for role in roles("ClusterRole") for rule in role["rules"]]
    (rule,) = [rule for rule in rules if "secrets" in rule["resources"]]
    named = {
        reference["name"]
        for path in SAMPLES
        for body in load(path)
        if (source := body["spec"].get("model", {}).get("source", {}).get("huggingFace"))
        and (reference := source.get("tokenSecretRef"))
    }
    assert set(rule["resourceNames"]) == named


def policies():
    """The admission policies by name."""
    return {body["metadata"]["name"]: body for body in find_all("ValidatingAdmissionPolicy")}


OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}


def test_every_write_that_a_role_grants_is_limited_by_a_policy():
    limited = defaultdict(set)
    for policy in policies().values():
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
            for group, resource in product(rule["apiGroups"], rule["resources"]):
                limited[group, resource] |= set(rule["operations"])
    components = [patch["value"] for path in (POOL_RULE, DOMAIN_RULE) for patch in load(path)[0]]
    everything = [granted(), granted_at_home(), verbs_of(components)]
    # A status says nothing that another controller acts on.
    unlimited = {
        (*resource, verb)
        for verbs_by_resource in everything
        for resource, verbs in verbs_by_resource.items()
        if not resource[1].endswith("/status")
        for verb in verbs & WRITES
        if OPERATIONS[verb] not in limited[resource]
    }
    assert unlimited == set()


def test_policies_are_for_the_service_account_and_refuse_what_they_cannot_evaluate():
    account = find("ServiceAccount")["metadata"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    for policy in policies().values():
        spec = policy["spec"]
        condition = {"name": "operator", "expression": f"request.userInfo.username == '{user}'"}
        assert spec["matchConditions"][0] == condition
        assert spec["failurePolicy"] == "Fail"
        # The operator tries again what is forbidden, as the policy may change.
        assert {validation["reason"] for validation in spec["validations"]} == {"Forbidden"}
    bindings = find_all("ValidatingAdmissionPolicyBinding")
    assert [binding["spec"]["policyName"] for binding in bindings] == list(policies())
    for binding in bindings:
        assert binding["spec"]["validationActions"] == ["Deny"]
        assert "matchResources" not in binding["spec"]


def test_only_the_lease_and_the_corrections_are_written_in_the_operators_namespace():
    assert granted_at_home() == {
        ("coordination.k8s.io", "leases"): {"get", "create", "update"},
        ("", "configmaps"): {"get", "create", "patch"},
    }
    home = find("ServiceAccount")["metadata"]["namespace"]
    assert {role["metadata"]["namespace"] for role in find_all("Role")} == {home}


def test_only_the_config_map_of_corrections_can_be_changed():
    rules = [rule for role in find_all("Role") for rule in role["rules"]]
    named = [rule for rule in rules if "patch" in rule["verbs"]]
    assert [rule["resourceNames"] for rule in named] == [[CORRECTIONS_CONFIG_MAP]]


def test_bindings_bind_the_service_account_to_the_roles():
    account = find("ServiceAccount")["metadata"]
    subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    for kind in ("ClusterRole", "Role"):
        bindings = find_all(f"{kind}Binding")
        assert all(binding["subjects"] == [subject] for binding in bindings)
        bound = [(binding["roleRef"]["kind"], binding["roleRef"]["name"]) for binding in bindings]
        assert bound == [(kind, role["metadata"]["name"]) for role in roles(kind)]


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


NETWORK = ROOT / "manifests" / "components" / "network-policies"


def test_the_network_policies_select_the_pods_and_open_the_ports_that_they_listen_on():
    (operator,), (models,) = load(NETWORK / "operator.yaml"), load(NETWORK / "models.yaml")
    template = find("Deployment")["spec"]["template"]
    rendered = load(ROOT / "tests" / "golden" / "render" / "70b-on-mi300x.output.yaml")
    (deployment,) = [body for body in rendered if body["kind"] == "Deployment"]
    for policy, pod in ((operator, template), (models, deployment["spec"]["template"])):
        selector = policy["spec"]["podSelector"]["matchLabels"]
        assert selector.items() <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        listens = {port["containerPort"] for port in container["ports"]}
        rules = policy["spec"]["ingress"]
        opened = {port["port"] for rule in rules for port in rule.get("ports", ())}
        assert opened == listens
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    pods = deployment["spec"]["template"]["metadata"]["labels"].items()
    for direction, peer in (("ingress", "from"), ("egress", "to")):
        (among,) = [rule for rule in models["spec"][direction] if "ports" not in rule]
        ((one,),) = [among[peer]]
        assert one["podSelector"]["matchLabels"].items() <= pods
    reached = [rule for rule in operator["spec"]["egress"] if {"port": 8000} in rule["ports"]]
    ((peer,),) = [rule["to"] for rule in reached]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
