"""The command of the init container downloads an adapter at its revision, with the real client."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.golden.render.inputs import container_of, make_deployment, make_spec, pod_of
from tests.support.foreign.hub_server import HubFile, HubServer
from tonnage.engines.inputs import RenderSettings

REPO = "acme/sql-lora"


def test_the_files_of_the_adapter_are_at_the_path_that_vllm_gets(
    hub: HubServer, tmp_path: Path
) -> None:
    files = {
        "adapter_config.json": HubFile.of("{}"),
        "adapter_model.safetensors": HubFile.of("weights"),
        "optimizer.pt": HubFile.of("large"),
    }
    commit = hub.add_repo(REPO, files)
    source = {"huggingFace": {"repo": REPO, "revision": commit}}
    spec = make_spec(lora={"adapters": [{"name": "sql", "rank": 8, "source": source}]})
    deployment = make_deployment(spec, settings=RenderSettings(hub.endpoint))
    (container,) = pod_of(deployment)["initContainers"]
    cache = tmp_path / "cache"
    variables = {each["name"]: each["value"] for each in container["env"]}
    moved = {
        name: value.replace("/cache", str(cache), 1) if value.startswith("/cache") else value
        for name, value in variables.items()
    }
    arguments = [
        argument.replace("/cache", str(cache), 1) if argument.startswith("/cache") else argument
        for argument in container["args"]
    ]
    program, *command = container["command"]
    assert program == "python3"
    subprocess.run(
        [sys.executable, *command, *arguments],
        check=True,
        env={**moved, "PATH": os.environ["PATH"]},
    )
    serve = container_of(deployment)["args"]
    module = json.loads(serve[serve.index("--lora-modules") + 1])
    folder = Path(module["path"].replace("/cache", str(cache), 1))
    downloaded = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
    assert downloaded == {"adapter_config.json": "{}", "adapter_model.safetensors": "weights"}
