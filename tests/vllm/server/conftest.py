"""Tiny models, and containers that Tonnage renders to serve it."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.programs.vllm_environment import SERVER, interpreter
from e2e.programs.vllm_server import VllmServer
from tests.golden.render.inputs import container_of, make_deployment, make_option, make_spec
from tonnage.api.inference import InferenceDeploymentSpec

MAKER = Path(__file__).parent / "make_tiny_model.py"
CONTEXT = 512
CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
"""What a server needs without a GPU: 1 GiB for its KV cache, from memory; and it asks no Hub."""

Start = Callable[..., VllmServer]


@pytest.fixture(scope="session")
def python() -> Path:
    return interpreter(SERVER)


@pytest.fixture(scope="session")
def tiny_llama(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(python, "llama", tmp_path_factory)


@pytest.fixture(scope="session")
def tiny_mixtral(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(python, "mixtral", tmp_path_factory)


def make_model(python: Path, kind: str, folders: pytest.TempPathFactory) -> Path:
    folder = folders.mktemp("model") / f"tiny-{kind}"
    subprocess.run([python, MAKER, kind, folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def start(
    python: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Start]:
    """Starts containers; all of them end with the module."""
    with ExitStack() as running:

        def begin(**asked: Any) -> VllmServer:
            container = render(**{"model": tiny_llama, **asked})
            folder = tmp_path_factory.mktemp("server")
            return running.enter_context(VllmServer(container, python, folder))

        yield begin


def render(
    model: Path,
    *,
    context: int = CONTEXT,
    tensor: int = 1,
    extra: tuple[str, ...] = (),
    cpu: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The container of an InferenceDeployment that loads the model from a folder."""
    spec = spec_for(model, context=context, extra=extra, cpu=cpu)
    return container_of(make_deployment(spec, make_option("h100-sxm-80gb", tensor=tensor)))


def spec_for(
    model: Path,
    *,
    context: int = CONTEXT,
    extra: tuple[str, ...] = (),
    cpu: dict[str, str] | None = None,
    enforce_eager: bool = True,
) -> InferenceDeploymentSpec:
    """The spec of an InferenceDeployment that loads the model from a folder."""
    return make_spec(
        model={
            "name": "tiny",
            "source": {"inline": {"config": {}, "loadFrom": str(model)}},
        },
        workload={"maxModelLen": context},
        engine={
            "vllm": {
                "version": "v0.32.0",
                "image": "example/vllm-cpu:v0.32.0",
                "enforceEager": enforce_eager,
                "maxNumSeqs": 4,
                "extraArgs": list(extra),
                "env": [
                    {"name": name, "value": value} for name, value in {**CPU, **(cpu or {})}.items()
                ],
            }
        },
    )
