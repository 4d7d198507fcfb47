"""The rendered charts, without a cluster: equal to kustomize, and invalid values are refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.harness.binaries import program_path
from e2e.harness.failure import HarnessError
from e2e.harness.operator_process import NAMESPACE, ROOT
from e2e.harness.rest import Json
from e2e.programs.helm import CRD_CHART, OPERATOR_CHART, Helm
from tonnage import __version__

MANIFESTS = ROOT / "manifests"
EXAMPLES = OPERATOR_CHART / "examples"
FLEET_FILE = MANIFESTS / "overlays" / "namespace-scoped" / "fleet.yaml"

# By these Helm knows its releases and their objects; kustomize has no releases.
HELMS_OWN_LABELS = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}
# A release lives in a namespace that is there before it; `--create-namespace` makes it.
MADE_BY_KUSTOMIZE_ALONE = "Namespace"
OF_A_SHARD = "tonnage-east"

PAIRS = {
    "base": (),
    "overlays/high-availability": ("-f", EXAMPLES / "high-availability.yaml"),
    "overlays/with-monitoring": ("-f", EXAMPLES / "with-monitoring.yaml"),
    "overlays/shard": ("-f", EXAMPLES / "shard.yaml"),
    "overlays/namespace-scoped": (
        *("-f", EXAMPLES / "namespace-scoped.yaml"),
        *("--set-file", f"fleet.content={FLEET_FILE}"),
    ),
}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


POLICY_KINDS = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


def kustomize(folder: Path) -> list[Json]:
    command = [str(program_path("kubectl")), "kustomize", str(folder)]
    text = subprocess.check_output(command, text=True)
    objects = [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]
    for manifest in objects:
        if manifest["kind"] in POLICY_KINDS:
            # kustomize 5.7 does not know that they belong to no namespace; the API server drops it.
            manifest["metadata"].pop("namespace", None)
    return objects


def by_name(objects: list[Json]) -> dict[tuple[str, ...], Json]:
    """Objects by kind, namespace (where they have one) and name."""
    named = {
        (
            manifest["kind"],
            *filter(None, [manifest["metadata"].get("namespace"), manifest["metadata"]["name"]]),
        ): manifest
        for manifest in objects
    }
    assert len(named) == len(objects)
    return named


def without_helms_labels(manifest: Json) -> Json:
    stripped = deepcopy(manifest)
    labels = stripped["metadata"]["labels"]
    assert labels.keys() >= HELMS_OWN_LABELS
    stripped["metadata"]["labels"] = {
        key: value for key, value in labels.items() if key not in HELMS_OWN_LABELS
    }
    return stripped


@pytest.mark.parametrize("overlay", PAIRS)
def test_chart_and_kustomize_render_the_same_objects(helm: Helm, overlay: str) -> None:
    namespace = OF_A_SHARD if overlay == "overlays/shard" else NAMESPACE
    released = helm.render(OPERATOR_CHART, *PAIRS[overlay], namespace=namespace)
    theirs = by_name([without_helms_labels(manifest) for manifest in released])
    ours = by_name(kustomize(MANIFESTS / overlay))
    assert theirs.keys() == {name for name in ours if name[0] != MADE_BY_KUSTOMIZE_ALONE}
    for name, manifest in theirs.items():
        assert manifest == ours[name]


def test_every_overlay_and_example_is_compared() -> None:
    overlays = {f"overlays/{path.name}" for path in (MANIFESTS / "overlays").iterdir()}
    assert overlays == PAIRS.keys() - {"base"}
    used = {option for options in PAIRS.values() for option in options}
    assert set(EXAMPLES.iterdir()) <= used


def test_the_crd_chart_has_the_generated_crds(helm: Helm) -> None:
    rendered = by_name(helm.render(CRD_CHART, namespace=NAMESPACE))
    files = [yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / "crds").glob("*.yaml")]
    generated = by_name(files)
    assert {name: manifest["spec"] for name, manifest in rendered.items()} == {
        name: manifest["spec"] for name, manifest in generated.items()
    }


@pytest.mark.parametrize("keep", [True, False])
def test_an_uninstall_keeps_the_crds_by_default(helm: Helm, keep: bool) -> None:
    rendered = helm.render(CRD_CHART, f"--set=keep={str(keep).lower()}", namespace=NAMESPACE)
    kept = [
        (manifest["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") == "keep"
        for manifest in rendered
    ]
    assert kept == [keep, keep]


@pytest.mark.parametrize("overlay", ["base", "overlays/high-availability"])
def test_all_objects_of_the_operator_have_the_recommended_labels(overlay: str) -> None:
    for manifest in kustomize(MANIFESTS / overlay):
        labels = manifest["metadata"]["labels"]
        assert {key.removeprefix("app.kubernetes.io/") for key in labels} >= {
            *("name", "component", "part-of", "version"),
        }, manifest["metadata"]["name"]


@pytest.mark.parametrize("chart", [OPERATOR_CHART, CRD_CHART], ids=lambda path: path.name)
def test_helm_lint_finds_nothing(helm: Helm, chart: Path) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", chart)


@pytest.mark.parametrize("example", sorted(EXAMPLES.iterdir()), ids=lambda path: path.stem)
def test_helm_lint_finds_nothing_with_any_example(helm: Helm, example: Path) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", OPERATOR_CHART, "-f", example)


REFUSED_VALUES = {
    "a key that is not there": ({"imagee": {"tag": "x"}}, "additional properties 'imagee'"),
    "a nested key that is not there": ({"image": {"tagg": "x"}}, "at '/image'"),
    "a setting in other letters": ({"settings": {"loglevel": "info"}}, "at '/settings'"),
    "a number for a tag": ({"image": {"tag": 0.1}}, "at '/image/tag': got number, want string"),
    "words for a count": ({"replicas": "two"}, "at '/replicas': got string, want integer"),
    "a count below one": ({"settings": {"workers": 0}}, "at '/settings/workers'"),
    "a short digest": ({"image": {"digest": "sha256:12"}}, "at '/image/digest'"),
    "a level that is none": ({"settings": {"logLevel": "loud"}}, "at '/settings/logLevel'"),
    "a list as text": ({"namespaces": "chat"}, "at '/namespaces': got string, want array"),
    "a name that is none": ({"namespaces": ["Chat"]}, "at '/namespaces/0'"),
    "namespaces without a fleet": ({"namespaces": ["chat"]}, "at '/fleet/configMap'"),
    "two tokens": (
        {
            "settings": {"prometheusBearerTokenFile": "/token"},
            "prometheus": {"bearerTokenSecret": "token"},
        },
        "at '/settings/prometheusBearerTokenFile'",
    ),
    "two bundles": (
        {"settings": {"prometheusCaFile": "/ca"}, "prometheus": {"caConfigMap": "ca"}},
        "at '/settings/prometheusCaFile'",
    ),
    "a tenant without its header": (
        {"settings": {"prometheusTenantHeader": "team-a"}},
        "at '/settings/prometheusTenantHeader'",
    ),
    "a fleet without a name": ({"fleet": {"content": "x"}}, "at '/fleet/configMap'"),
    "a class without a name": ({"priorityClass": {"name": ""}}, "at '/priorityClass/name'"),
    "a toleration's typing error": ({"tolerations": [{"keyy": "x"}]}, "at '/tolerations/0'"),
    "a way to ask for tokens that is none": (
        {"settings": {"metricsAuth": "password"}},
        "at '/settings/metricsAuth'",
    ),
    "a Secret for all": ({"rbac": {"secretNames": ["*"]}}, "at '/rbac/secretNames/0'"),
    "namespaces of models as text": (
        {"networkPolicy": {"models": "chat"}},
        "at '/networkPolicy/models': got string, want array",
    ),
    "a label of the chart's": (
        {"podLabels": {"app.kubernetes.io/name": "x"}},
        "at '/podLabels/app.kubernetes.io~1name'",
    ),
}


@pytest.mark.parametrize("case", REFUSED_VALUES)
def test_an_invalid_value_is_refused_with_its_path(helm: Helm, tmp_path: Path, case: str) -> None:
    values, want = REFUSED_VALUES[case]
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values), "utf-8")
    with pytest.raises(HarnessError) as error:
        helm.render(OPERATOR_CHART, "-f", file, namespace=NAMESPACE)
    assert want in str(error.value)


def test_an_invalid_value_of_the_crd_chart_is_refused(helm: Helm) -> None:
    with pytest.raises(HarnessError, match="at '/keep': got string, want boolean"):
        helm.render(CRD_CHART, "--set-string=keep=yes", namespace=NAMESPACE)


def deployment(helm: Helm, *arguments: str | Path) -> dict[str, Any]:
    rendered = by_name(helm.render(OPERATOR_CHART, *arguments, namespace=NAMESPACE))
    template: dict[str, Any] = rendered["Deployment", NAMESPACE, "tonnage"]["spec"]["template"]
    return template


def test_settings_become_environment_variables(helm: Helm) -> None:
    settings = {"logLevel": "debug", "workers": 12, "kubeApiQps": 2.5, "kubeApiBurst": 10000}
    template = deployment(helm, "--set-json", f"settings={json.dumps(settings)}")
    (container,) = template["spec"]["containers"]
    given = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert given["TONNAGE_LOG_LEVEL"] == "debug"
    assert given["TONNAGE_WORKERS"] == "12"
    assert given["TONNAGE_KUBE_API_QPS"] == "2.5"
    assert given["TONNAGE_KUBE_API_BURST"] == "10000"


def test_the_token_and_ca_of_prometheus_are_mounted_at_the_configured_paths(helm: Helm) -> None:
    values = {"bearerTokenSecret": "metrics-token", "caConfigMap": "metrics-ca"}
    template = deployment(helm, "--set-json", f"prometheus={json.dumps(values)}")
    (container,) = template["spec"]["containers"]
    given = {entry["name"]: entry.get("value") for entry in container["env"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert volumes["prometheus-token"]["secret"] == {"secretName": "metrics-token"}
    assert volumes["prometheus-ca"]["configMap"] == {"name": "metrics-ca"}
    token, ca = mounts["prometheus-token"], mounts["prometheus-ca"]
    assert given["TONNAGE_PROMETHEUS_BEARER_TOKEN_FILE"] == f"{token}/token"
    assert given["TONNAGE_PROMETHEUS_CA_FILE"] == f"{ca}/ca.crt"


DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ({}, f"tonnage:{__version__}"),
        ({"repository": "example/tonnage", "tag": "next"}, "example/tonnage:next"),
        ({"digest": DIGEST}, f"tonnage:{__version__}@{DIGEST}"),
    ],
)
def test_the_image_has_a_tag_or_a_digest(helm: Helm, image: dict[str, str], want: str) -> None:
    template = deployment(helm, f"--set-json=image={json.dumps(image)}")
    assert template["spec"]["containers"][0]["image"] == want


def test_monitoring_objects_have_the_labels_that_select_them(helm: Helm) -> None:
    rendered = helm.render(
        OPERATOR_CHART,
        *("-f", EXAMPLES / "with-monitoring.yaml", "--set=monitoring.labels.release=prometheus"),
        namespace=NAMESPACE,
    )
    selected = [
        manifest["kind"]
        for manifest in rendered
        if manifest["metadata"]["labels"].get("release") == "prometheus"
    ]
    assert sorted(selected) == ["ConfigMap", "PodMonitor", "PodMonitor", "PrometheusRule"]


@pytest.mark.parametrize(("drain_seconds", "want"), [(20, 30), (60, 70), (0.5, 11)])
def test_the_grace_period_outlasts_the_drain(helm: Helm, drain_seconds: float, want: int) -> None:
    template = deployment(helm, f"--set-json=settings.drainSeconds={drain_seconds}")
    assert template["spec"]["terminationGracePeriodSeconds"] == want


@pytest.mark.parametrize(
    ("component", "value"),
    [
        ("inference-pool", "gateway.inferencePool=true"),
        ("compute-domains", "settings.computeDomains=true"),
        ("without-secrets", "rbac.secretNames=null"),
        ("without-weights", "rbac.downloadJobs=false"),
    ],
)
@pytest.mark.parametrize("overlay", ["base", "overlays/namespace-scoped"])
def test_a_value_grants_the_same_rules_as_its_kustomize_component(
    helm: Helm, tmp_path: Path, overlay: str, component: str, value: str
) -> None:
    folders = {"resources": overlay, "components": f"components/{component}"}
    kustomization = {
        field: [os.path.relpath(MANIFESTS / folder, tmp_path)] for field, folder in folders.items()
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), "utf-8")
    plain = helm.render(OPERATOR_CHART, *PAIRS[overlay], namespace=NAMESPACE)
    with_value = helm.render(OPERATOR_CHART, *PAIRS[overlay], f"--set={value}", namespace=NAMESPACE)
    assert rules(with_value) == rules(kustomize(tmp_path))
    assert rules(with_value) != rules(plain)


@pytest.mark.parametrize("overlay", ["base", "overlays/namespace-scoped"])
def test_components_that_remove_permissions_combine_in_the_order_of_the_page(
    tmp_path: Path, overlay: str
) -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    (line,) = re.findall(r"^- (`without-.*): remove permissions\.", page, re.MULTILINE)
    names = re.findall(r"`(without-[a-z]+)`", line)
    assert len(names) == len(list((MANIFESTS / "components").glob("without-*")))
    kustomization = {
        "resources": [os.path.relpath(MANIFESTS / overlay, tmp_path)],
        "components": [
            os.path.relpath(MANIFESTS / "components" / name, tmp_path) for name in names
        ],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), "utf-8")
    resources = {
        resource
        for manifest in kustomize(tmp_path)
        for rule in manifest.get("rules") or []
        for resource in rule["resources"]
    }
    assert not resources & {"secrets", "jobs", "leaderworkersets", "controllerrevisions"}
    assert "deployments" in resources


PROTECTED = (
    "--set=settings.metricsAuth=token",
    "--set=metrics.tlsSecret=tonnage-tls",
    "--set=networkPolicy.operator=true",
)


def test_values_protect_metrics_and_network_as_the_components_do(
    helm: Helm, tmp_path: Path
) -> None:
    overlay = "overlays/with-monitoring"
    folders = ("network-policies", "metrics-auth", "metrics-tls")
    kustomization = {
        "resources": [os.path.relpath(MANIFESTS / overlay, tmp_path)],
        "components": [
            os.path.relpath(MANIFESTS / "components" / name, tmp_path) for name in folders
        ],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), "utf-8")
    released = helm.render(OPERATOR_CHART, *PAIRS[overlay], *PROTECTED, namespace=NAMESPACE)
    theirs = by_name([without_labels(manifest) for manifest in released])
    ours = by_name([without_labels(manifest) for manifest in kustomize(tmp_path)])
    assert theirs.keys() == {name for name in ours if name[0] != MADE_BY_KUSTOMIZE_ALONE}
    for name, manifest in theirs.items():
        assert container_sorted(manifest) == container_sorted(ours[name])


def without_labels(manifest: Json) -> Json:
    """Without the labels of the object itself: a component's objects have fewer than the base's."""
    return {
        **manifest,
        "metadata": {k: v for k, v in manifest["metadata"].items() if k != "labels"},
    }


def container_sorted(manifest: Json) -> Json:
    """With the variables in the order of their names, which means nothing here."""
    if manifest["kind"] != "Deployment":
        return manifest
    copy = deepcopy(manifest)
    (container,) = copy["spec"]["template"]["spec"]["containers"]
    container["env"].sort(key=lambda one: one["name"])
    return copy


def test_the_policy_for_models_is_in_each_of_their_namespaces(helm: Helm) -> None:
    (shipped,) = yaml.safe_load_all(
        (MANIFESTS / "components" / "network-policies" / "models.yaml").read_text("utf-8")
    )
    values = ("--set=networkPolicy.models={chat,search}",)
    rendered = by_name(helm.render(OPERATOR_CHART, *values, namespace=NAMESPACE))
    for namespace in ("chat", "search"):
        assert rendered["NetworkPolicy", namespace, "tonnage-models"]["spec"] == shipped["spec"]
    elsewhere = helm.render(
        OPERATOR_CHART, *values, "--set=networkPolicy.monitoringNamespace=prom", namespace="ml"
    )
    policy = by_name(elsewhere)["NetworkPolicy", "chat", "tonnage-models"]
    sources = [
        source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        for source in policy["spec"]["ingress"][0]["from"]
        if "namespaceSelector" in source
    ]
    assert sources == ["ml", "prom"]


def test_the_admission_policies_are_for_the_service_account_of_the_release(helm: Helm) -> None:
    rendered = helm.render(OPERATOR_CHART, "--set=shard=east", namespace="ml")
    policies = [
        manifest for manifest in rendered if manifest["kind"] == "ValidatingAdmissionPolicy"
    ]
    assert len(policies) == 7
    for policy in policies:
        condition = policy["spec"]["matchConditions"][0]["expression"]
        assert condition == "request.userInfo.username == 'system:serviceaccount:ml:tonnage'"
    bound = {
        manifest["metadata"]["name"]: manifest["spec"]["policyName"]
        for manifest in rendered
        if manifest["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    names = [policy["metadata"]["name"] for policy in policies]
    assert bound == {name: name for name in names}
    assert all(name.endswith("-east") for name in names)


@pytest.mark.parametrize(
    ("value", "kinds", "prefix"),
    [
        ("rbac.admissionPolicies", POLICY_KINDS, "tonnage-"),
        ("rbac.userRoles", {"ClusterRole"}, "tonnage-"),
    ],
)
def test_a_value_leaves_out_what_the_platform_team_has_otherwise(
    helm: Helm, value: str, kinds: set[str], prefix: str
) -> None:
    plain = by_name(helm.render(OPERATOR_CHART, namespace=NAMESPACE))
    without = by_name(helm.render(OPERATOR_CHART, f"--set={value}=false", namespace=NAMESPACE))
    left_out = plain.keys() - without.keys()
    assert left_out
    assert left_out == {name for name in plain if name[0] in kinds and name[1].startswith(prefix)}


def rules(objects: list[Json]) -> dict[tuple[str, ...], list[Json]]:
    return {
        name: manifest["rules"]
        for name, manifest in by_name(objects).items()
        if "rules" in manifest
    }


def test_each_namespace_gets_a_role_and_there_is_no_cluster_role(helm: Helm) -> None:
    rendered = helm.render(
        OPERATOR_CHART,
        *("-f", EXAMPLES / "namespace-scoped.yaml", "--set=namespaces={chat,search}"),
        namespace="ml-team",
    )
    assert all("namespace" in manifest["metadata"] for manifest in rendered)
    bindings = [manifest for manifest in rendered if manifest["kind"] == "RoleBinding"]
    assert {binding["metadata"]["namespace"] for binding in bindings} == {
        "ml-team",
        "chat",
        "search",
    }
    subjects = [subject for binding in bindings for subject in binding["subjects"]]
    assert {subject["namespace"] for subject in subjects} == {"ml-team"}


def test_it_can_be_a_subchart(helm: Helm, tmp_path: Path) -> None:
    parent = tmp_path / "platform"
    (parent / "charts").mkdir(parents=True)
    (parent / "Chart.yaml").write_text("apiVersion: v2\nname: platform\nversion: 1.0.0\n", "utf-8")
    (parent / "values.yaml").write_text(
        "global: {region: north}\ntonnage: {replicas: 3}\n", "utf-8"
    )
    for chart in (OPERATOR_CHART, CRD_CHART):
        (parent / "charts" / chart.name).symlink_to(chart)
    rendered = by_name(helm.render(parent, namespace=NAMESPACE))
    assert rendered["Deployment", NAMESPACE, "tonnage"]["spec"]["replicas"] == 3
    assert ("CustomResourceDefinition", "inferencedeployments.tonnage.dev") in rendered
