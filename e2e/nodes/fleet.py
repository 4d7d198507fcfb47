"""Fake GPU nodes from a short description: `python -m e2e.nodes.fleet apply --kubeconfig K
mixed`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from e2e.harness.failure import HarnessError, run_cli
from e2e.harness.rest import Access, ApiError, Json, Rest
from e2e.harness.stack import check_ours
from e2e.nodes.descriptions import GROUP_ANNOTATION, READY_LABEL, render_nodes
from e2e.nodes.slices import render_device_classes, render_slices

__all__ = [
    "apply_fleet",
    "apply_nodes",
    "delete_fleet",
    "load_fleet",
    "render_nodes",
    "shipped_fleets",
]

_FLEETS = Path(__file__).parents[1] / "fleets"
_PARALLEL = 16
_READY_TIMEOUT = 240.0
_POLL_INTERVAL = 0.1
_DRA = "/apis/resource.k8s.io/v1"
_NOT_READY_TAINTS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
_PASSING_TAINTS = {*_NOT_READY_TAINTS, "node.kubernetes.io/unschedulable"}


def shipped_fleets() -> list[str]:
    """Return the names of the fleets that can be named without a path."""
    return sorted(path.stem for path in _FLEETS.glob("*.yaml") if path.stem != "labels")


def load_fleet(name: str | Path) -> Any:
    """Read a description from a file, or a shipped one by its bare name."""
    path = Path(name)
    if not path.exists() and str(name) in shipped_fleets():
        path = _FLEETS / f"{name}.yaml"
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HarnessError(
            f"fleet {str(name)!r}: {error.strerror}; give a file, or one of "
            f"{', '.join(shipped_fleets())}"
        ) from None
    except yaml.YAMLError as error:
        raise HarnessError(f"{path} is not YAML: {error}") from None


def apply_fleet(access: Access, description: Any, *, wait: bool = True, prune: bool = False) -> int:
    """Make the nodes match the description and, with `wait`, wait until they are Ready.

    ResourceSlices come before their nodes: no watcher ever sees a GPU node without GPUs.
    """
    check_ours(access)
    rest = Rest(access)
    slices = render_slices(description)
    _for_each(render_device_classes(slices), lambda body: _apply_body(rest, "deviceclasses", body))
    _for_each(slices, lambda body: _apply_body(rest, "resourceslices", body))
    count = apply_nodes(access, render_nodes(description), wait=wait, prune=prune)
    if prune:
        names = {body["metadata"]["name"] for body in slices}
        _for_each(_fake_slices(rest) - names, lambda name: _delete_slice(rest, name))
    return count


def apply_nodes(
    access: Access, nodes: list[Json], *, wait: bool = True, prune: bool = False
) -> int:
    """Make these Node objects, as `render_nodes` returns them, in the cluster; see apply_fleet."""
    check_ours(access)
    rest = Rest(access)
    _for_each(nodes, lambda node: _apply_node(rest, node))
    by_name = {node["metadata"]["name"]: node for node in nodes}
    pruned = _fake_nodes(rest) - by_name.keys() if prune else set()
    _for_each(pruned, lambda name: _delete_node(rest, name))
    if wait:
        _await_ready(rest, by_name, pruned)
    return len(nodes)


def delete_fleet(access: Access, description: Any) -> int:
    """Delete the nodes of a description, as a machine that is gone for good."""
    names = [node["metadata"]["name"] for node in render_nodes(description)]
    check_ours(access)
    rest = Rest(access)
    _for_each(names, lambda name: _delete_node(rest, name))
    slices = [body["metadata"]["name"] for body in render_slices(description)]
    _for_each(slices, lambda name: _delete_slice(rest, name))
    return len(names)


def _for_each(items: Iterable[Any], action: Callable[[Any], object]) -> None:
    with ThreadPoolExecutor(_PARALLEL) as pool:
        list(pool.map(action, items))


def _apply_node(rest: Rest, node: Json) -> None:
    """Make a node with its status at once: no watcher ever sees a GPU node without GPUs."""
    try:
        rest.request("POST", "/api/v1/nodes", node)
    except ApiError as error:
        if error.code != 409:
            raise
        _replace_node(rest, node)


def _replace_node(rest: Rest, node: Json) -> None:
    """Give a node that exists the described labels, taints and resources, and no others.

    Conditions are KWOK's, and taints of the name `node.kubernetes.io/` the controllers'.
    """
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    while True:
        current = rest.request("GET", path)
        system = [
            taint
            for taint in current["spec"].get("taints") or []
            if taint["key"].startswith("node.kubernetes.io/")
        ]
        annotations = (current["metadata"].get("annotations") or {}) | node["metadata"][
            "annotations"
        ]
        wanted = {
            **current,
            "metadata": {
                **current["metadata"],
                "labels": node["metadata"]["labels"],
                "annotations": annotations,
            },
            "spec": {**current["spec"], **node["spec"], "taints": node["spec"]["taints"] + system},
        }
        try:
            rest.request("PUT", path, wanted)
            break
        except ApiError as error:
            if error.code != 409:  # a controller wrote in between: look again
                raise
    change = [
        {"op": "add", "path": f"/status/{field}", "value": node["status"][field]}
        for field in ("capacity", "allocatable", "nodeInfo")
    ]
    content = "application/json-patch+json"
    rest.request("PATCH", f"{path}/status", change, content_type=content)


def _apply_body(rest: Rest, plural: str, body: Json) -> None:
    path = f"{_DRA}/{plural}/{body['metadata']['name']}"
    query = {"fieldManager": "e2e-fleet", "force": "true"}
    rest.request("PATCH", path, body, query=query, content_type="application/apply-patch+yaml")


def _delete_node(rest: Rest, name: str) -> None:
    _delete(rest, f"/api/v1/nodes/{name}")


def _delete_slice(rest: Rest, name: str) -> None:
    _delete(rest, f"{_DRA}/resourceslices/{name}")


def _delete(rest: Rest, path: str) -> None:
    try:
        rest.request("DELETE", path)
    except ApiError as error:
        if error.code != 404:
            raise


def _fake_nodes(rest: Rest) -> set[str]:
    items = rest.request("GET", "/api/v1/nodes")["items"]
    marked = (i for i in items if GROUP_ANNOTATION in (i["metadata"].get("annotations") or {}))
    return {item["metadata"]["name"] for item in marked}


def _fake_slices(rest: Rest) -> set[str]:
    query = {"labelSelector": GROUP_ANNOTATION}
    items = rest.request("GET", f"{_DRA}/resourceslices", query=query)["items"]
    return {item["metadata"]["name"] for item in items}


def _settled(node: Json | None, wanted: Json) -> bool:
    """As described, Ready, and without the taints that keep pods away until the controllers have
    seen it so."""
    if node is None:
        return False
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = {taint["key"] for taint in node["spec"].get("taints") or []}
    passing = _NOT_READY_TAINTS if wanted["spec"].get("unschedulable") else _PASSING_TAINTS
    # The list comes from a cache, which may still have the node of an earlier fleet.
    labels = (node["metadata"].get("labels") or {}).items()
    return ready and not taints & passing and wanted["metadata"]["labels"].items() <= labels


def _await_ready(rest: Rest, nodes: dict[str, Json], pruned: set[str]) -> None:
    """Wait until all nodes that are to be Ready are so, and those that were pruned are gone."""
    expected = {
        name: node for name, node in nodes.items() if READY_LABEL not in node["metadata"]["labels"]
    }
    deadline = time.monotonic() + _READY_TIMEOUT
    while True:
        items = rest.request("GET", "/api/v1/nodes", query={"resourceVersion": "0"})["items"]
        live = {item["metadata"]["name"]: item for item in items}
        waiting = {name for name, node in expected.items() if not _settled(live.get(name), node)}
        waiting |= pruned & live.keys()
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise HarnessError(
                f"{len(waiting)} nodes are not Ready, or not gone, after {_READY_TIMEOUT:.0f} s, "
                f"as {', '.join(sorted(waiting)[:5])}; does KWOK run "
                "(`python -m e2e.harness.stack status`)?"
            )
        time.sleep(max(_POLL_INTERVAL, len(items) / 1000))  # a long list is dear to the server


def _summary(description: Any) -> Table:
    table = Table("group", "nodes", "resources a node", "memory", "taints")
    rows: dict[str, list[Json]] = {}
    for node in render_nodes(description):
        rows.setdefault(node["metadata"]["annotations"][GROUP_ANNOTATION], []).append(node)
    for group, nodes in rows.items():
        allocatable = nodes[0]["status"]["allocatable"]
        devices = [f"{name}: {n}" for name, n in allocatable.items() if "/" in name]
        taints = [taint["key"] for taint in nodes[0]["spec"]["taints"]]
        table.add_row(
            group,
            str(len(nodes)),
            ", ".join(devices) or "-",
            nodes[0]["status"]["capacity"]["memory"],
            ", ".join(taints) or "-",
        )
    return table


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.nodes.fleet",
        description="Fake GPU nodes with real labels, played by KWOK.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("apply", "make the nodes of a fleet"),
        ("delete", "delete the nodes of a fleet"),
        ("render", "print the objects of a fleet as YAML, without a cluster"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument(
            "fleet", metavar="FILE", help=f"or one of {', '.join(shipped_fleets())}"
        )
        if name != "render":
            command.add_argument("--kubeconfig", type=Path, default=os.environ.get("KUBECONFIG"))
        if name == "apply":
            command.add_argument("--no-wait", action="store_true", help="return before Ready")
            command.add_argument("--prune", action="store_true", help="delete other fake nodes")
    return parser.parse_args()


def main() -> int:
    """Run one command."""
    arguments = _parse()
    console = Console(soft_wrap=True, highlight=False)
    description = load_fleet(arguments.fleet)
    if arguments.command == "render":
        slices = render_slices(description)
        bodies = [*render_device_classes(slices), *slices, *render_nodes(description)]
        console.print(yaml.safe_dump_all(bodies, sort_keys=False), markup=False)
        return 0
    if not arguments.kubeconfig:
        raise HarnessError(
            "no --kubeconfig and no KUBECONFIG; give the one of `e2e.harness.stack up`"
        )
    access = Access.load(Path(arguments.kubeconfig))
    if arguments.command == "delete":
        console.print(f"deleted {delete_fleet(access, description)} nodes")
        return 0
    started = time.monotonic()
    wait = not arguments.no_wait
    count = apply_fleet(access, description, wait=wait, prune=arguments.prune)
    console.print(_summary(description))
    verb = "Ready" if wait else "applied"
    console.print(f"{count} nodes {verb} in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(run_cli(main))
