"""Argo CD's settings for our kinds, made from the Lua files in Argo CD's contribution layout.

`manifests/argo-cd/resource_customizations` is what Argo CD's own repository would take; until a
release ships it, the same scripts are installed as keys of the ConfigMap `argocd-cm`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from e2e.harness.failure import run_cli

FOLDER = Path(__file__).parents[2] / "manifests" / "argo-cd"
CUSTOMIZATIONS = FOLDER / "resource_customizations"
SETTINGS = FOLDER / "argocd-cm.yaml"

_HEADER = """\
# Health and actions of Tonnage's kinds, for the ConfigMap of an Argo CD that is there already:
#   kubectl -n argocd patch configmap argocd-cm --patch-file argocd-cm.yaml
# Made from resource_customizations/ by `make argo-cd`; change the Lua files, not this one.
"""


class _Script(str):
    """Text that is written as a block, so that a person can read the Lua in it."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(
    _Script,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|"),
)


def render_settings(customizations: Path = CUSTOMIZATIONS) -> str:
    """Return the ConfigMap, as a patch, with the health and the actions of every kind."""
    data = {}
    for folder in sorted(path.parent for path in customizations.glob("*/*/health.lua")):
        kind = f"{folder.parent.name}_{folder.name}"
        data[f"resource.customizations.health.{kind}"] = _read(folder / "health.lua")
        if (folder / "actions").is_dir():
            data[f"resource.customizations.actions.{kind}"] = _actions(folder / "actions")
    patch = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "argocd-cm"},
        "data": data,
    }
    return _HEADER + _dump(patch)


def _actions(folder: Path) -> _Script:
    """Return the actions of one kind as the YAML text that stands in the ConfigMap."""
    definitions = [
        {"name": script.parent.name, "action.lua": _read(script)}
        for script in sorted(folder.glob("*/action.lua"))
    ]
    actions = {"discovery.lua": _read(folder / "discovery.lua"), "definitions": definitions}
    return _Script(_dump(actions))


def _read(path: Path) -> _Script:
    return _Script(path.read_text(encoding="utf-8"))


def _dump(value: object) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=1_000)


def main() -> int:
    """Write the ConfigMap."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.programs.argo_cd_settings",
        description="Write manifests/argo-cd/argocd-cm.yaml from the Lua files next to it.",
    )
    parser.add_argument("--output", type=Path, default=SETTINGS, help="default: %(default)s")
    parser.parse_args().output.write_text(render_settings(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run_cli(main))
