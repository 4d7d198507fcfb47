"""/metrics that asks for a token, with the rights of its component, and scrapes with the token."""

from __future__ import annotations

import base64
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from e2e.harness.admin import SLOW, Admin
from e2e.harness.operator_process import NAMESPACE, ROOT, USER, OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.programs.prometheus import Prometheus
from e2e.programs.prometheus_operator import PrometheusOperator, crds
from e2e.rights import Right, denied

COMPONENTS = ROOT / "manifests" / "components"
MONITORING = ROOT / "manifests" / "overlays" / "with-monitoring"
RBAC = COMPONENTS / "metrics-auth" / "rbac.yaml"
REVIEWS = {
    Right("authentication.k8s.io", "tokenreviews", "create"),
    Right("authorization.k8s.io", "subjectaccessreviews", "create"),
}


def rendered(admin: Admin, folder: Path, *components: str) -> list[Json]:
    """The overlay with-monitoring with these components, as a platform team has it."""
    folder.mkdir()
    kustomization = {
        "resources": [os.path.relpath(MONITORING, folder)],
        "components": [os.path.relpath(COMPONENTS / name, folder) for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), "utf-8")
    return list(yaml.safe_load_all(admin.kubectl("kustomize", str(folder))))


def variables(objects: list[Json]) -> dict[str, str]:
    """The variables that the components add to the operator."""
    (deployment,) = (body for body in objects if body["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    added = ("TONNAGE_METRICS_AUTH", "TONNAGE_TLS_CERTIFICATE_FILE", "TONNAGE_TLS_KEY_FILE")
    return {one["name"]: one["value"] for one in container["env"] if one["name"] in added}


@pytest.fixture(scope="module")
def granted(installed: Admin) -> Iterator[None]:
    """The rights of the component."""
    bodies = installed.apply(RBAC)
    yield
    for body in bodies:
        metadata = body["metadata"]
        installed.delete(body["kind"], metadata["name"], metadata.get("namespace"))


@pytest.fixture(scope="module")
def guarded(
    control_plane: Stack,
    installed: Admin,
    granted: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorProcess]:
    """An operator that asks for tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    environment = variables(rendered(installed, folder / "rendered", "metrics-auth"))
    assert environment == {"TONNAGE_METRICS_AUTH": "token"}
    process = OperatorProcess(control_plane, folder, environment=environment)
    process.start()
    yield process
    process.close()


def answer(url: str, token: str | None = None, trusted: ssl.SSLContext | None = None) -> int:
    """The status of an answer to a caller with this token."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60, context=trusted) as response:
            return int(response.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


def token_of(admin: Admin, namespace: str, name: str, audience: str | None = None) -> str:
    """A token of a ServiceAccount, as a kubelet mounts it."""
    audiences = {"audiences": [audience]} if audience else {}
    request = {"spec": {"expirationSeconds": 600, **audiences}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    return str(admin.rest.request("POST", path, request)["status"]["token"])


def scrape_token(admin: Admin) -> str:
    """The token with which the PodMonitor has Prometheus scrape."""

    def filled(secret: Json) -> bool:
        return "token" in (secret.get("data") or {})

    secret = admin.wait_for("secrets", "tonnage-metrics", filled, NAMESPACE, timeout=SLOW)
    return base64.b64decode(secret["data"]["token"]).decode()


def test_the_metrics_are_for_whom_a_role_lets_get_them(
    guarded: OperatorProcess, installed: Admin, namespace: str
) -> None:
    url = f"http://{guarded.address}"
    scraper, pod = scrape_token(installed), token_of(installed, namespace, "default")
    installed.until(
        "its role to count", lambda: answer(f"{url}/metrics", scraper) == 200, timeout=SLOW
    )
    other = token_of(installed, NAMESPACE, "tonnage-metrics", "https://another.example.com")
    assert answer(f"{url}/metrics") == 401
    assert answer(f"{url}/metrics", "not-a-token") == 401
    assert answer(f"{url}/metrics", other) == 401
    assert answer(f"{url}/metrics", pod) == 403
    assert answer(f"{url}/metrics", scraper) == 200
    for page in ("healthz", "readyz"):
        assert answer(f"{url}/{page}") == 200
    assert scraper not in guarded.log.read_text("utf-8")


def test_a_role_lets_another_one_in_and_a_scrape_costs_no_review(
    guarded: OperatorProcess, installed: Admin, namespace: str
) -> None:
    """By the command of docs/prometheus.md, with another ServiceAccount."""
    url = f"http://{guarded.address}/metrics"
    installed.kubectl(
        *("create", "clusterrolebinding", "prometheus-tonnage"),
        *("--clusterrole=tonnage-metrics-reader", f"--serviceaccount={namespace}:default"),
    )
    try:
        token = token_of(installed, namespace, "default")
        installed.until("the role to let it in", lambda: answer(url, token) == 200, timeout=SLOW)
        mark = installed.audit_mark()
        assert [answer(url, token) for _ in range(5)] == [200] * 5
        reviews = {right.resource for right in REVIEWS}
        asked = [
            event
            for event in installed.requests(USER, since=mark)
            if event.get("objectRef", {}).get("resource") in reviews
        ]
        assert asked == []
    finally:
        installed.delete("clusterrolebinding", "prometheus-tonnage")


def test_the_component_grants_the_reviews_and_nothing_else(installed: Admin, granted: None) -> None:
    role = installed.get("clusterrole", "system:auth-delegator")
    assert role is not None
    assert {
        Right(group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    } == REVIEWS
    for right in REVIEWS:
        installed.until(
            "the right to review",
            partial(installed.allows, USER, right.verb, f"{right.resource}.{right.group}", ""),
            timeout=SLOW,
        )


def test_without_the_right_to_review_no_caller_is_allowed_and_the_log_says_why(
    control_plane: Stack, installed: Admin, granted: None, tmp_path: Path
) -> None:
    """And it is granted only with the component."""
    token = scrape_token(installed)
    binding = next(
        body for body in yaml.safe_load_all(RBAC.read_text("utf-8")) if "Binding" in body["kind"]
    )
    installed.delete("clusterrolebinding", binding["metadata"]["name"])
    reviews = ("create", "tokenreviews.authentication.k8s.io", "")
    installed.until(
        "the right to be gone", lambda: not installed.allows(USER, *reviews), timeout=SLOW
    )
    mark = installed.audit_mark()
    process = OperatorProcess(
        control_plane, tmp_path / "operator", environment={"TONNAGE_METRICS_AUTH": "token"}
    )
    try:
        process.start()
        assert answer(f"http://{process.address}/metrics", token) == 503
        why = "may not create tokenreviews.authentication.k8s.io"
        installed.until(
            "the log to say why",
            lambda: any(why in line["message"] for line in process.log_lines()),
            timeout=SLOW,
            describe=lambda: str(process),
        )
        assert denied(installed.requests(USER, since=mark))
    finally:
        process.close()
        installed.apply(binding)


@dataclass(frozen=True)
class Certificates:
    """Those that a server made for itself; each is its own CA."""

    certificate: Path
    key: Path

    @property
    def trusted(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.certificate)
        context.check_hostname = False
        return context


def test_prometheus_scrapes_by_https_with_the_token_of_the_pod_monitor(
    control_plane: Stack, installed: Admin, granted: None, tmp_path: Path
) -> None:
    """The configuration is what the Prometheus Operator makes of the shipped PodMonitor."""
    objects = rendered(installed, tmp_path / "rendered", "metrics-auth", "metrics-tls")
    pki = control_plane.layout.pki
    own = Certificates(pki / "apiserver.crt", pki / "apiserver.key")
    environment = variables(objects) | {
        "TONNAGE_TLS_CERTIFICATE_FILE": str(own.certificate),
        "TONNAGE_TLS_KEY_FILE": str(own.key),
    }
    monitors = [
        body
        for body in objects
        if body["kind"] == "PodMonitor" and body["metadata"]["name"] == "tonnage"
    ]
    token = scrape_token(installed)
    with ExitStack() as ends:
        ends.enter_context(crds(installed))
        namespace = ends.enter_context(installed.fresh_namespace("monitoring"))
        installed.apply([tls_secret(own), *monitors])
        ends.callback(installed.delete, "secrets", "tonnage-tls", NAMESPACE)
        maker = PrometheusOperator(installed, namespace, tmp_path / "prometheus-operator")
        ends.callback(maker.close)
        maker.start()
        (job,) = maker.configuration(jobs=1)["scrape_configs"]
        assert job["scheme"] == "https"
        assert job["authorization"] == {"type": "Bearer", "credentials": token}
        assert job["tls_config"]["server_name"] == f"tonnage.{NAMESPACE}.svc"
        operator = OperatorProcess(control_plane, tmp_path / "operator", environment=environment)
        ends.callback(operator.close)
        operator.launch()
        url = f"https://{operator.address}/metrics"
        installed.until("it to answer by HTTPS", lambda: answers(url, own.trusted), timeout=SLOW)
        assert answer(url, trusted=own.trusted) == 401
        prometheus = Prometheus(tmp_path / "prometheus")
        ends.callback(prometheus.close)
        prometheus.start({"scrape_configs": [led_to(job, operator.address, own)]}, {})
        installed.until("a scrape", lambda: prometheus.query("up == 1"), timeout=SLOW)


def answers(url: str, trusted: ssl.SSLContext) -> bool:
    try:
        return answer(url.replace("/metrics", "/readyz"), trusted=trusted) == 200
    except OSError:
        return False


def tls_secret(own: Certificates) -> Json:
    """The Secret as cert-manager writes it."""
    files = {"tls.crt": own.certificate, "tls.key": own.key, "ca.crt": own.certificate}
    data = {name: base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}
    metadata = {"name": "tonnage-tls", "namespace": NAMESPACE}
    kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
    return {**kind, "metadata": metadata, "data": data}


def led_to(job: Json, address: str, own: Certificates) -> Json:
    """The job with its token and scheme, for the process in place of pods. The certificate of the
    tests has another name than the one that the job expects."""
    tls = {"ca_file": str(own.certificate), "server_name": "127.0.0.1"}
    kept = ("authorization", "metrics_path", "scheme")
    return {
        "job_name": "tonnage",
        "scrape_interval": "1s",
        "static_configs": [{"targets": [address]}],
        "tls_config": tls,
        **{key: job[key] for key in kept if key in job},
    }
