"""The charts on a real cluster, by the real helm: install, upgrade, roll back, uninstall."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from e2e.harness.admin import SLOW, Admin, condition
from e2e.harness.failure import HarnessError
from e2e.harness.operator_process import ROOT, OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.models import inference
from e2e.programs.helm import CRD_CHART, OPERATOR_CHART, Helm

KINDS = ("inferencedeployments.tonnage.dev", "acceleratorpools.tonnage.dev")
NAMESPACE_SCOPED = ROOT / "manifests" / "overlays" / "namespace-scoped"
WAIT = ("--wait", "--timeout=240s")


@pytest.fixture
def helm(empty_stack: Stack, tmp_path: Path) -> Helm:
    return Helm(tmp_path / "helm", empty_stack.kubeconfig)


@pytest.fixture
def kinds(helm: Helm, platform: Admin, operator_namespace: str) -> Iterator[str]:
    """The kinds, installed; gone afterwards, whatever became of the release. Gives the notes."""
    yield install_kinds(helm, operator_namespace)
    helm.run("uninstall", CRD_CHART.name, f"--namespace={operator_namespace}", "--ignore-not-found")
    for name in KINDS:
        platform.delete("crd", name, timeout=SLOW)


@pytest.fixture
def release(helm: Helm, kinds: str, operator_namespace: str) -> Iterator[str]:
    """The operator, installed. Gives the notes."""
    yield install_operator(helm, operator_namespace)
    helm.run(
        "uninstall", OPERATOR_CHART.name, f"--namespace={operator_namespace}", "--ignore-not-found"
    )


def install_kinds(helm: Helm, namespace: str, *options: str) -> str:
    return helm.run(
        "install", CRD_CHART.name, CRD_CHART, f"--namespace={namespace}", *WAIT, *options
    )


def install_operator(helm: Helm, namespace: str, *options: str) -> str:
    return helm.run(
        "install", OPERATOR_CHART.name, OPERATOR_CHART, f"--namespace={namespace}", *WAIT, *options
    )


def upgrade_operator(helm: Helm, namespace: str, chart: Path, *options: str) -> str:
    return helm.run("upgrade", OPERATOR_CHART.name, chart, f"--namespace={namespace}", *options)


def deployment(platform: Admin, namespace: str) -> Json:
    stored = platform.get("deploy", "tonnage", namespace)
    assert stored is not None
    return stored


def test_an_install_runs_two_ready_replicas_and_prints_the_next_steps(
    kinds: str, release: str, platform: Admin, operator_namespace: str
) -> None:
    status = deployment(platform, operator_namespace)["status"]
    assert (status["readyReplicas"], status["updatedReplicas"]) == (2, 2)
    assert "helm install tonnage" in kinds
    for command in (
        f"kubectl rollout status deployment/tonnage -n {operator_namespace}",
        "kubectl get acceleratorpools",
        "kubectl describe inferencedeployment",
    ):
        assert command in release


def test_changed_values_roll_the_pods_and_a_rollback_restores_them(
    release: str, helm: Helm, platform: Admin, operator_namespace: str
) -> None:
    before = deployment(platform, operator_namespace)["spec"]
    change = ("--set=settings.logLevel=debug", "--set=replicas=3")
    upgrade_operator(helm, operator_namespace, OPERATOR_CHART, *change, *WAIT)
    changed = deployment(platform, operator_namespace)["spec"]
    (container,) = changed["template"]["spec"]["containers"]
    assert {"name": "TONNAGE_LOG_LEVEL", "value": "debug"} in container["env"]
    assert changed["replicas"] == 3

    helm.run("rollback", OPERATOR_CHART.name, "1", f"--namespace={operator_namespace}", *WAIT)
    assert deployment(platform, operator_namespace)["spec"] == before
    history = helm.history(OPERATOR_CHART.name, operator_namespace)
    assert [revision["status"] for revision in history] == ["superseded", "superseded", "deployed"]


def test_an_upgrade_of_the_chart_replaces_only_the_pods(
    release: str, helm: Helm, platform: Admin, operator_namespace: str, tmp_path: Path
) -> None:
    before = deployment(platform, operator_namespace)
    chart = tmp_path / "tonnage"
    shutil.copytree(OPERATOR_CHART, chart)
    metadata = yaml.safe_load((chart / "Chart.yaml").read_text("utf-8"))
    metadata |= {"version": "0.2.0", "appVersion": "0.2.0"}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(metadata), "utf-8")

    upgrade_operator(helm, operator_namespace, chart, *WAIT)
    after = deployment(platform, operator_namespace)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    (container,) = after["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "tonnage:0.2.0"
    assert after["status"]["readyReplicas"] == 2


def test_an_upgrade_that_cannot_start_keeps_the_old_pods_and_is_rolled_back(
    release: str, helm: Helm, platform: Admin, operator_namespace: str
) -> None:
    broken = '--set-json=podLabels={"e2e.tonnage.dev/behaviour": "image-pull-failure"}'
    with pytest.raises(HarnessError, match="has been rolled back"):
        upgrade_operator(
            helm,
            operator_namespace,
            OPERATOR_CHART,
            broken,
            *("--wait", "--timeout=30s", "--rollback-on-failure"),  # for the rollback as well
        )
    assert deployment(platform, operator_namespace)["status"]["availableReplicas"] == 2
    assert helm.history(OPERATOR_CHART.name, operator_namespace)[-1]["status"] == "deployed"


def test_an_upgrade_with_an_invalid_value_changes_nothing(
    release: str, helm: Helm, platform: Admin, operator_namespace: str
) -> None:
    before = without_status(deployment(platform, operator_namespace))
    with pytest.raises(HarnessError, match="additional properties 'logLevel' not allowed"):
        upgrade_operator(helm, operator_namespace, OPERATOR_CHART, "--set=logLevel=debug")
    assert without_status(deployment(platform, operator_namespace)) == before
    assert len(helm.history(OPERATOR_CHART.name, operator_namespace)) == 1


def without_status(target: Json) -> Json:
    """What helm writes: its controller writes the status, and with it a resourceVersion."""
    metadata = {key: target["metadata"][key] for key in ("generation", "labels", "annotations")}
    return metadata | {"spec": target["spec"]}


def test_a_second_release_for_the_same_cluster_is_refused(
    release: str, helm: Helm, platform: Admin
) -> None:
    refusal = r'PriorityClass "tonnage".* exists and cannot be imported'
    with platform.fresh_namespace("second") as second, pytest.raises(HarnessError, match=refusal):
        install_operator(helm, second)


def test_two_teams_run_operators_without_cluster_roles(
    kinds: str, helm: Helm, platform: Admin
) -> None:
    with platform.fresh_namespace("team-a") as first, platform.fresh_namespace("team-b") as second:
        for served in (first, second):
            notes = install_operator(
                helm,
                served,
                f"--values={OPERATOR_CHART / 'examples' / 'namespace-scoped.yaml'}",
                f"--set=namespaces={{{served}}}",
                f"--set-file=fleet.content={NAMESPACE_SCOPED / 'fleet.yaml'}",
            )
            assert f"It serves {served} and reads the fleet from the ConfigMap" in notes
        accounts = [f"system:serviceaccount:{team}:tonnage" for team in (first, second)]
        assert platform.allows(accounts[0], "patch", "deployments.apps", first)
        assert not platform.allows(accounts[0], "patch", "deployments.apps", second)
        assert not platform.allows(accounts[1], "patch", "deployments.apps", first)
        assert platform.get("clusterrole", "tonnage") is None


def test_models_stay_ready_during_an_uninstall_and_are_adopted_by_the_next_install(
    release: str,
    helm: Helm,
    platform: Admin,
    empty_stack: Stack,
    operator_namespace: str,
    tmp_path: Path,
) -> None:
    operator = OperatorProcess(empty_stack, tmp_path / "operator")
    with platform.fresh_namespace("chat"):
        operator.start()
        platform.apply(inference("llama", "llama-3.1-8b"))
        platform.wait_for("infd", "llama", condition("Ready"), timeout=SLOW)
        operator.stop()
        served = platform.get("infd", "llama")
        assert served is not None
        assert condition("Ready")(served)
        children = owned(platform)
        assert {kind for kind, _ in children} == {"deploy", "svc"}

        for chart in (OPERATOR_CHART, CRD_CHART):
            helm.run("uninstall", chart.name, f"--namespace={operator_namespace}", "--wait")
        for kind in ("deploy", "sa", "pdb", "role", "rolebinding"):
            assert platform.get(kind, "tonnage", operator_namespace) is None
        for kind in ("clusterrole", "clusterrolebinding", "pc"):
            assert platform.get(kind, "tonnage") is None
        assert platform.get("infd", "llama") == served
        assert owned(platform) == children

        install_kinds(helm, operator_namespace)
        install_operator(helm, operator_namespace)
        again = OperatorProcess(empty_stack, tmp_path / "again")
        again.start()
        platform.until("the new operator to lead", lambda: again.leads, timeout=SLOW)
        platform.patch("infd", "llama", {"spec": {"replicas": 2}})
        platform.wait_for("infd", "llama", served_by(2), timeout=SLOW)
        assert owned(platform) == children
        again.close()
        operator.close()


def owned(platform: Admin) -> dict[tuple[str, str], str]:
    """The uids of the children in the namespace of the moment."""
    return {
        (kind, manifest["metadata"]["name"]): manifest["metadata"]["uid"]
        for kind in ("deploy", "svc")
        for manifest in platform.items(kind, selector="app.kubernetes.io/managed-by=tonnage")
    }


def served_by(replicas: int) -> Callable[[Json], bool]:
    """Whether so many replicas are ready."""
    return lambda target: bool(target["status"].get("readyReplicas") == replicas)


def test_helm_adopts_crds_of_kubectl_with_take_ownership(
    helm: Helm, platform: Admin, operator_namespace: str
) -> None:
    platform.kubectl("apply", "-f", str(ROOT / "crds"))
    try:
        with pytest.raises(HarnessError, match="invalid ownership metadata"):
            install_kinds(helm, operator_namespace)
        install_kinds(helm, operator_namespace, "--take-ownership", "--force-conflicts")
        helm.run("uninstall", CRD_CHART.name, f"--namespace={operator_namespace}")
    finally:
        for name in KINDS:
            platform.delete("crd", name, timeout=SLOW)


def test_helm_adopts_an_operator_of_kustomize_without_a_restart(
    helm: Helm, kinds: str, platform: Admin, operator_namespace: str
) -> None:
    # Pods of a release before this one are collected later than it goes.
    platform.wait_items("pods", lambda pods: not pods, operator_namespace, timeout=SLOW)
    platform.kubectl("apply", "-k", str(ROOT / "manifests" / "base"))
    before = platform.wait_for(
        "deploy", "tonnage", condition("Available"), operator_namespace, timeout=SLOW
    )
    pods = names(platform, operator_namespace)
    install_operator(helm, operator_namespace, "--take-ownership", "--force-conflicts")
    after = deployment(platform, operator_namespace)
    assert after["spec"] == before["spec"]
    assert names(platform, operator_namespace) == pods
    helm.run("uninstall", OPERATOR_CHART.name, f"--namespace={operator_namespace}")


def names(platform: Admin, namespace: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in platform.items("pods", namespace)}
