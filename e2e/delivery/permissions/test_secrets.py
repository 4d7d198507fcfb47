"""Nothing that the operator writes contains a secret, whatever the source of the secret.

Secrets are planted wherever the operator meets any: in Secrets, in the addresses that it is given,
in a spec, and in the words of servers. Then everything that it wrote is searched for them.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.harness.admin import SLOW, Admin
from e2e.harness.failure import HarnessError
from e2e.harness.operator_process import NAMESPACE, SERVICE_ACCOUNT, USER, OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference, token_secret
from tests.support.foreign.hub_server import Answer, HubServer

SHAPED = "hf_PlantedHubToken1234567890"
SHAPELESS = "planted-token-of-a-mirror"
ENDPOINT, PROMETHEUS = "planted-endpoint-password", "planted-prometheus-password"
BEARER = "planted-bearer-of-prometheus"
VARIABLE = "planted-value-of-a-variable"
WORDS, ADMISSION = "planted-servers-word", "planted-admission-password"
PLANTED = (SHAPED, SHAPELESS, ENDPOINT, PROMETHEUS, BEARER, VARIABLE, WORDS, ADMISSION)

TINY = {"maxModelLen": 2048}


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


def ask_prometheus(way: str, address: str, folder: Path) -> dict[str, str]:
    """The variables of an operator that is given a password in the address, or a token."""
    if way == "password":
        return {"TONNAGE_PROMETHEUS_URL": f"http://robot:{PROMETHEUS}@{address}"}
    token = folder / "token"
    token.write_text(BEARER, encoding="utf-8")
    return {
        "TONNAGE_PROMETHEUS_URL": f"http://{address}",
        "TONNAGE_PROMETHEUS_BEARER_TOKEN_FILE": str(token),
    }


@pytest.fixture(params=[("json", "password"), ("console", "token")], ids="-".join)
def operator(
    request: pytest.FixtureRequest,
    control_plane: Stack,
    installed: Admin,
    hub: HubServer,
    tmp_path: Path,
) -> Iterator[OperatorProcess]:
    """An operator that tells all it can, with passwords in the addresses that it is given."""
    address = hub.endpoint.removeprefix("http://")
    log_format, way = request.param
    environment = {
        "HF_ENDPOINT": f"http://robot:{ENDPOINT}@{address}",
        "HF_HOME": str(tmp_path / "hub"),
        **ask_prometheus(way, address, tmp_path),
        "TONNAGE_LOG_LEVEL": "debug",
        "TONNAGE_LOG_FORMAT": log_format,
    }
    process = OperatorProcess(control_plane, tmp_path / "operator", environment=environment)
    process.start()
    yield process
    process.close()


def gated(name: str) -> Json:
    source = {"huggingFace": {"repo": f"acme/{name}", "tokenSecretRef": {"name": name}}}
    return inference(name, model={"source": source}, workload=TINY)


def let_it_be_read(user: User, secret: str) -> None:
    """Let the operator get a Secret, as docs/rights.md says, and wait until the authorizer knows:
    a denial would be reported as the Hub's refusal is."""
    account = f"--serviceaccount={NAMESPACE}:{SERVICE_ACCOUNT}"
    for command in (
        ("role", secret, "--verb=get", "--resource=secrets", f"--resource-name={secret}"),
        ("rolebinding", secret, f"--role={secret}", account),
    ):
        user.admin.kubectl("create", *command, f"--namespace={user.namespace}")
    user.admin.until(
        "the operator to have the right",
        lambda: user.admin.allows(USER, "get", "secrets", user.namespace, name=secret),
        timeout=SLOW,
    )


def refuse_with_words(user: User, hub: HubServer, name: str, token: str) -> str:
    """A Hub that repeats the token it was given, and passwords of others; what status says."""
    said = (
        f"{token} or Bearer {token} may not: http://bot:{WORDS}@cdn.corp/f?X-Amz-Signature={WORDS}"
        f" robot/{ENDPOINT}"
    )
    hub.trouble = Answer(403, {"X-Error-Message": said})
    user.admin.apply(token_secret(name, token))
    let_it_be_read(user, name)
    user.apply(gated(name))
    status = user.wait(name, has("Accepted", "False", "ModelAccessDenied"), timeout=SLOW)
    hub.trouble = None
    return str(condition(status, "Accepted")["message"])


def fail_with_words(user: User) -> str:
    """A pod whose kubelet repeats a variable of the spec; what status says."""
    env = [{"name": "MIRROR_TOKEN", "value": VARIABLE}]
    user.apply(inference("fails", behaviour="never-ready", engine={"vllm": {"env": env}}))
    user.wait("fails", has("Placed"), timeout=SLOW)
    pod = user.admin.until("its pod", lambda: next(iter(user.pods("fails")), None), timeout=SLOW)
    why = f"cannot run with {VARIABLE} from https://robot:{WORDS}@registry.corp"
    waiting = {"reason": "CreateContainerError", "message": why}
    started = {"name": "vllm", "ready": False, "restartCount": 0, "image": "", "imageID": ""}
    change = {"status": {"containerStatuses": [{**started, "state": {"waiting": waiting}}]}}

    def failure_message() -> str | None:
        user.admin.patch("pods", pod, change, subresource="status")
        message = str(condition(user.status("fails"), "Ready").get("message"))
        return message if "CreateContainerError" in message else None

    return user.admin.until("the kubelet's words in the status", failure_message, timeout=SLOW)


def refuse_at_admission(user: User) -> str:
    """A policy of the cluster that names a password; what status says."""
    name = f"planted-{user.namespace}"
    words = f"pull https://robot:{ADMISSION}@registry.corp/vllm first"
    metadata = {"name": name}
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": metadata}
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    user.admin.apply(
        [
            {
                **api,
                "kind": "ValidatingAdmissionPolicy",
                "spec": {
                    "matchConstraints": {"resourceRules": [{**rule, "operations": ["CREATE"]}]},
                    "validations": [
                        {
                            "expression": f"object.metadata.namespace != '{user.namespace}' || "
                            "!object.metadata.name.startsWith('refused')",
                            "message": words,
                        }
                    ],
                },
            },
            {
                **api,
                "kind": "ValidatingAdmissionPolicyBinding",
                "spec": {"policyName": name, "validationActions": ["Deny"]},
            },
        ]
    )
    try:
        user.admin.until("the policy to hold", lambda: _is_refused(user), timeout=SLOW)
        user.apply(inference("refused", "llama-3.1-8b"))
        status = user.wait("refused", has("Ready", "False", "ChildRefused"), timeout=SLOW)
    finally:
        user.admin.delete("validatingadmissionpolicybinding", name)
        user.admin.delete("validatingadmissionpolicy", name)
    return str(condition(status, "Ready")["message"])


def _is_refused(user: User) -> bool:
    probe = ("create", "deployment", "refused-probe", "--image=none", "--dry-run=server")
    try:
        user.admin.kubectl(*probe, f"--namespace={user.namespace}")
    except HarnessError as error:
        return ADMISSION in str(error)
    return False


def everything_written(user: User, operator: OperatorProcess) -> dict[str, str]:
    """All that can be read of the operator and of what it made."""
    pages = {}
    for page in ("readyz", "healthz", "metrics"):
        with urllib.request.urlopen(f"http://{operator.address}/{page}", timeout=5) as answer:
            pages[page] = answer.read().decode()
    made = ("deployments", "services", "acceleratorpools", "events", "leases")
    objects = {kind: user.admin.items(kind, everywhere=True) for kind in made}
    for deployment in objects["deployments"]:
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            # What the user wrote into the spec is the user's own, and has to reach the pod.
            container["env"] = [
                variable
                for variable in container.get("env", [])
                if variable["name"] != "MIRROR_TOKEN"
            ]
    statuses = [model.get("status") for model in user.admin.items("infd")]
    return {
        "log": operator.log.read_text("utf-8"),
        "statuses": json.dumps(statuses),
        "arguments": " ".join(operator.command()),
        **pages,
        **{kind: json.dumps(items) for kind, items in objects.items()},
    }


def test_no_secret_is_in_anything_that_the_operator_writes(
    control_plane: Stack,
    fleet: UseFleet,
    user: User,
    hub: HubServer,
    operator: OperatorProcess,
    tmp_path: Path,
) -> None:
    fleet("tiny")
    assert "***" in refuse_with_words(user, hub, "shaped", SHAPED)
    assert "***" in refuse_with_words(user, hub, "shapeless", SHAPELESS)
    assert "https://***@registry.corp" in fail_with_words(user)
    assert "https://***@registry.corp" in refuse_at_admission(user)
    user.apply(inference("measured", "llama-3.1-8b"))
    user.wait_ready("measured", timeout=SLOW)
    user.admin.until(
        "Prometheus to be asked",
        lambda: any("/api/v1/query" in asked for asked in hub.requests),
        timeout=SLOW,
    )
    user.await_quiet()  # an Event is written after the status of which it tells
    kubeconfig = yaml.safe_load((tmp_path / "operator" / "operator.kubeconfig").read_text("utf-8"))
    bearer = kubeconfig["users"][0]["user"]["token"]
    written = everything_written(user, operator)
    leaks = [
        (where, planted)
        for where, text in written.items()
        for planted in (*PLANTED, bearer)
        if planted in text
    ]
    assert leaks == []
    assert f"http://***@{hub.endpoint.removeprefix('http://')}" in written["log"], "of the settings"
