"""Sources of models: the Hub, a ConfigMap, a volume; and the errors of each."""

from __future__ import annotations

import json
import subprocess
import sys

from e2e.harness.operator_process import NAMESPACE, ROOT, USER, OperatorProcess
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, container, has
from e2e.models import inference, token_secret
from tests.support.foreign.hub_server import HubServer
from tests.support.foreign.tiny_model import CONFIG, SHARDS, TOKEN, WEIGHTS
from tests.support.pages.markdown_pages import read_page
from tests.support.pages.shell_lines import typed_commands

TINY = {"maxModelLen": 2048}
RIGHTS_PAGE = ROOT / "docs" / "rights.md"
PAGES_NAMESPACE = "chat"  # in the commands of the page


def from_hub(repo: str, **more: object) -> Json:
    return {"model": {"source": {"huggingFace": {"repo": repo, **more}}}, "workload": TINY}


def test_a_model_from_the_hub_runs_and_status_has_its_commit(
    fleet: UseFleet, user: User, hub: HubServer
) -> None:
    fleet("tiny")
    hub.add_repo("acme/tiny", {"config.json": CONFIG, "model.safetensors": WEIGHTS})
    user.apply(inference("tiny", **from_hub("acme/tiny")))
    status = user.wait_ready("tiny")
    assert status["model"]["revision"] == hub.repos["acme/tiny"].commit
    assert status["model"]["architecture"] == "LlamaForCausalLM"
    (deployment,) = user.children("deployments", "tiny")
    assert container(deployment)["args"][0] == "acme/tiny"


def test_a_gated_model_needs_a_token_which_is_never_exposed(
    fleet: UseFleet, user: User, hub: HubServer, operator: OperatorProcess
) -> None:
    fleet("tiny")
    files = {"config.json": CONFIG, **SHARDS}
    hub.add_repo("acme/gated", files, gated=True, readers=(TOKEN,))
    user.apply(inference("gated", **from_hub("acme/gated")))
    status = user.wait("gated", has("Accepted", "False", "ModelAccessDenied"))
    assert "acme/gated" in condition(status, "Accepted")["message"]
    user.admin.apply(token_secret("hf", TOKEN))
    user.apply(inference("gated", **from_hub("acme/gated", tokenSecretRef={"name": "hf"})))
    user.wait_ready("gated")
    (deployment,) = user.children("deployments", "gated")
    (variable,) = (
        variable for variable in container(deployment)["env"] if variable["name"] == "HF_TOKEN"
    )
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "hf", "key": "token"}
    seen = json.dumps([user.get("gated"), deployment, user.admin.items("events")])
    assert TOKEN not in seen
    assert TOKEN not in operator.log.read_text("utf-8")


def test_a_missing_model_and_a_gated_model_have_different_errors(
    fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    user.apply(inference("missing", **from_hub("acme/no-such-model")))
    status = user.wait("missing", has("Accepted", "False"))
    assert condition(status, "Accepted")["reason"] in ("ModelNotFound", "ModelAccessDenied")
    assert "acme/no-such-model" in condition(status, "Accepted")["message"]


def test_a_config_map_may_be_created_after_the_object(fleet: UseFleet, user: User) -> None:
    fleet("tiny")
    source = {"configMap": {"name": "facts", "loadFrom": "acme/tiny"}}
    user.apply(inference("later", model={"source": source}, workload=TINY))
    user.wait("later", has("Accepted", "False", "ModelNotFound"))
    user.admin.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "facts"},
            "data": {"config.json": CONFIG.start.decode()},
        }
    )
    user.wait_ready("later")


def bound_claim(user: User, name: str) -> list[Json]:
    """A claim and the volume that is bound to it."""
    size = {"storage": "200Gi"}
    common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    metadata = {"name": f"{user.namespace}-{name}"}
    volume = {
        **common,
        "capacity": size,
        "hostPath": {"path": "/models"},
        "claimRef": {"name": name, "namespace": user.namespace},
    }
    claim = {**common, "resources": {"requests": size}, "volumeName": metadata["name"]}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": claim,
        },
    ]


def test_weights_on_a_volume_are_mounted_and_inspect_prints_a_job_for_their_facts(
    fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    user.admin.apply(bound_claim(user, "models"))
    inspect = ["inspect", "--pvc=models", "--path=llama", "--config-map=facts"]
    printed = subprocess.run(
        [sys.executable, "-m", "tonnage", *inspect, f"--namespace={user.namespace}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    user.admin.kubectl("apply", "--validate=strict", "-f", "-", text=printed)
    (job,) = user.admin.items("jobs")
    user.admin.delete("jobs", job["metadata"]["name"], timeout=None)  # no container runs here
    facts = {"data": {"config.json": CONFIG.start.decode(), "weightsBytes": str(WEIGHTS.size)}}
    user.admin.patch("configmaps", "facts", facts)
    source = {"claimName": "models", "path": "llama", "facts": {"configMap": {"name": "facts"}}}
    user.apply(
        inference("volume", model={"source": {"persistentVolumeClaim": source}}, workload=TINY)
    )
    user.wait_ready("volume")
    (deployment,) = user.children("deployments", "volume")
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    claims = [volume.get("persistentVolumeClaim", {}).get("claimName") for volume in volumes]
    assert "models" in claims
    assert container(deployment)["args"][0].endswith("/llama")


def test_the_administrator_of_a_namespace_lets_the_operator_read_a_token(
    fleet: UseFleet, user: User, hub: HubServer
) -> None:
    """By the commands of docs/rights.md, for a Secret that the operator's role does not name."""
    fleet("tiny")
    inside = f"--namespace={user.namespace}"
    role = ("rolebinding", "admin", "--clusterrole=admin", "--user=administrator")
    user.admin.kubectl("create", *role, inside)
    repository = {"config.json": CONFIG, **SHARDS}
    hub.add_repo("acme/named", repository, gated=True, readers=(TOKEN,))
    user.admin.apply(token_secret("llama-token", TOKEN))
    source = {"repo": "acme/named", "tokenSecretRef": {"name": "llama-token"}}
    model = {"source": {"huggingFace": source}}
    user.apply(inference("named", model=model, workload={"maxModelLen": 2048}))
    status = user.wait("named", has("Accepted", "False", "ModelAccessDenied"))
    assert "a Role in this namespace can allow" in condition(status, "Accepted")["message"]
    commands = granting_commands()
    assert [words[1:3] for words in commands] == [["create", "role"], ["create", "rolebinding"]]
    for words in commands:
        here = [user.namespace if word == PAGES_NAMESPACE else word for word in words]
        user.admin.kubectl("--as=administrator", *here[1:])
    user.wait_ready("named", timeout=180)
    assert not user.admin.allows(USER, "get", "secrets", user.namespace, name="another")
    assert not user.admin.allows(USER, "get", "secrets", NAMESPACE, name="llama-token")


def granting_commands() -> list[list[str]]:
    """The page's commands that grant the operator a Secret."""
    return [
        list(command.words)
        for block in read_page(RIGHTS_PAGE).blocks
        if block.language == "console" and "--resource=secrets" in block.text
        for command in typed_commands(block.text, block.line, prompt=True)
    ]
