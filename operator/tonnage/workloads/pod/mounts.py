"""Paths at which volumes are mounted into containers."""

import posixpath
from collections.abc import Mapping
from typing import Any

from tonnage.engines.defaults import load_defaults


def normalize_path(mount: Mapping[str, Any]) -> str:
    """The path of a mount without `..` and further slashes."""
    return posixpath.normpath("/" + str(mount.get("mountPath", "")).lstrip("/"))


def mounts_cache(mount: Mapping[str, Any]) -> bool:
    """Whether the mount is at the path of the cache."""
    return normalize_path(mount) == load_defaults().cache.path
