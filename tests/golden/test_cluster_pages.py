"""docs/plan.md and docs/explain.md show what the tool prints; `make golden` puts it there."""

import asyncio
import copy
import os
import re
import shlex
from collections.abc import Iterable
from datetime import datetime, tzinfo
from pathlib import Path

import pytest
import yaml

from tests.support.api_server.live_fake import connect_to
from tests.support.in_memory.cluster import H100, L40S, MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import crashing
from tests.support.in_memory.dumps import dump
from tonnage.cli.commands import explain, plan, pools
from tonnage.cli.main import main
from tonnage.kube.kinds import NODES
from tonnage.kube.protocol import Object

DOCS = Path(__file__).parents[2] / "docs"

BLOCK = re.compile(r"(?<=```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
QUESTION = re.compile(r"\$ (?P<question>tonnage [^\n]*)\n(?:(?!\$ )[^\n]*\n)*")

FLEET = (
    {**MI300X, "count": 2},
    {**H100, "count": 1},
    {**L40S, "count": 1},
)
LARGE = spec_of("llama-3.3-70b", workload={"maxModelLen": 32768, "concurrency": 16}, replicas=2)
SMALL = spec_of("llama-3.1-8b")
LOG = (
    "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: "
    "incomplete metadata, file not fully covered\n"
)


def infd(name: str, spec: Object) -> Object:
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name},
        "spec": spec,
    }


def running() -> Cluster:
    """The cluster of the pages: one object serves, one fails, one node is out of use."""
    cluster = Cluster(*FLEET)
    cluster.apply("llama-70b", LARGE)
    cluster.apply("broken", SMALL)
    cluster.behaviours["broken"] = crashing()
    asyncio.run(cluster.settle())
    for pod in cluster.pods("broken"):
        name = pod["metadata"]["name"]
        cluster.api.set_log("chat", name, "vllm", LOG, previous=True)
    cluster.cordon("mi300x-1")
    asyncio.run(cluster.resync())
    return cluster


class Noon(datetime):
    """The moment at which the pages were made."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime(2026, 1, 1, 12, tzinfo=tz)


def write(path: Path, bodies: Iterable[Object]) -> None:
    path.write_text(yaml.safe_dump_all(list(bodies)))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that the pages name, and the cluster that they describe."""
    monkeypatch.chdir(tmp_path)
    for module in (explain, plan, pools):
        monkeypatch.setattr(module, "datetime", Noon)
    cluster = running()
    connect_to(monkeypatch, cluster.api, explain, plan, pools)
    dump(Cluster(*FLEET).api, Path("nodes.yaml"), [NODES])
    single = [{**kind, "count": 1, "gpusPerNode": 1} for kind in (MI300X, H100)]
    dump(Cluster(*single).api, Path("one-of-each.yaml"), [NODES])
    changed = copy.deepcopy(LARGE) | {"replicas": 3}
    write(Path("llama-70b.yaml"), [infd("llama-70b", LARGE)])
    write(Path("llama-70b-changed.yaml"), [infd("llama-70b", changed)])
    write(
        Path("batch.yaml"),
        [infd("small", SMALL), infd("large", spec_of("llama-3.3-70b"))],
    )


def answer(question: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints, cut as by the `head` or `tail` after it."""
    words, _, cut = question.partition(" | ")
    main(shlex.split(words)[1:])
    printed = capsys.readouterr()
    assert printed.err == "", question
    lines = [line.rstrip() for line in printed.out.rstrip().splitlines()]
    if cut:
        which, count = re.fullmatch(r"(head|tail) -(\d+)", cut).groups()  # type: ignore[union-attr] # else the page is wrong
        lines = lines[: int(count)] if which == "head" else lines[-int(count) :]
    return "\n".join([f"$ {question}", *lines, ""])


def render(page: str, capsys: pytest.CaptureFixture[str]) -> str:
    def ask(block: re.Match[str]) -> str:
        return QUESTION.sub(lambda match: answer(match["question"], capsys), block[0])

    return BLOCK.sub(ask, page)


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize("name", ["plan.md", "explain.md"])
def test_the_page_shows_what_the_tool_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    want = render(page, capsys)
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        (DOCS / name).write_text(want, encoding="utf-8")
        return
    assert page == want, f"docs/{name} differs: `make golden`, then read the diff"
