"""The certificate authorities that pods trust, for another pod that reaches the same servers.

Behind a proxy that opens TLS connections, users mount a bundle of certificates and name it in
variables. A pod that downloads for them has to have both.
"""

import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tonnage.fleet.devices.resources import as_mapping
from tonnage.workloads.pod.mounts import normalize_path

Json = dict[str, Any]

CERTIFICATE_VARIABLES: Final = frozenset(
    {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}
)
"""Variables with a path that OpenSSL, requests, httpx and hf-xet read."""

_SOURCES: Final = frozenset({"configMap", "secret"})
"""Volumes that are the same in every pod of the namespace, and that any pod may mount."""

_PROJECTIONS: Final = _SOURCES | {"clusterTrustBundle"}
"""The same in projected volumes. A token of a ServiceAccount is none of them."""

_VOLUME: Final = "certificates-"
"""Prefix of the names of the volumes; a number follows."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The variables, and the volumes with the files that they name."""

    variables: tuple[Json, ...] = ()
    volumes: tuple[Json, ...] = ()
    mounts: tuple[Json, ...] = ()


@dataclass(slots=True)
class _Taken:
    """The volumes that are taken, by their names in the first pod."""

    volumes: dict[str, Json] = field(default_factory=dict)
    mounts: dict[str, Json] = field(default_factory=dict)


def certificates_of(pod: Json, container: Json, own_paths: Collection[str]) -> Certificates:
    """What a container of a rendered pod trusts; `own_paths` are mount paths of the other pod.

    A path that no volume covers is in the image, which the other pod has as well. A variable whose
    path is on a volume of another kind, or hidden by one of the other pod's, is left out: it would
    name nothing.
    """
    volumes = {volume["name"]: volume for volume in pod.get("volumes") or []}
    mounts = container.get("volumeMounts") or []
    variables, taken = [], _Taken()
    for variable in container.get("env") or []:
        paths = _paths_of(variable) if variable["name"] in CERTIFICATE_VARIABLES else []
        covering = {path: _covering(path, mounts) for path in paths}
        sources = [(one, volumes.get(one["name"], {})) for one in covering.values() if one]
        is_hidden = any(_covers(own, path) for path in paths for own in own_paths)
        if not paths or is_hidden or not all(_is_same_everywhere(*source) for source in sources):
            continue
        variables.append(variable)
        for mount, volume in sources:
            _take(taken, mount, volume)
    return Certificates(
        tuple(variables), tuple(taken.volumes.values()), tuple(taken.mounts.values())
    )


def _paths_of(variable: Mapping[str, Any]) -> list[str]:
    """The absolute paths that a variable names; none where one cannot be read here."""
    value = variable.get("value")
    paths = value.split(":") if isinstance(value, str) else []
    if not all(path.startswith("/") and "$(" not in path for path in paths):
        return []
    return [posixpath.normpath(path) for path in paths]


def _covers(folder: str, path: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def _covering(path: str, mounts: Sequence[Json]) -> Json | None:
    """The mount that has the path: of several the deepest."""
    covering = [mount for mount in mounts if _covers(normalize_path(mount), path)]
    return max(covering, key=lambda mount: len(normalize_path(mount)), default=None)


def _is_same_everywhere(mount: Json, volume: Json) -> bool:
    """Whether the mount shows the same in every pod. Nothing has checked the volume but its name:
    the API server does when the workload is written."""
    if "subPathExpr" in mount:  # has variables of the container
        return False
    if "projected" not in volume:
        return not _SOURCES.isdisjoint(volume)
    sources = as_mapping(volume["projected"]).get("sources")
    return isinstance(sources, list) and all(
        isinstance(each, Mapping) and each.keys() <= _PROJECTIONS for each in sources
    )


def _take(taken: _Taken, mount: Json, volume: Json) -> None:
    known = taken.volumes.get(mount["name"])
    name = known["name"] if known else f"{_VOLUME}{len(taken.volumes)}"
    taken.volumes[mount["name"]] = {**volume, "name": name}
    taken.mounts[normalize_path(mount)] = {**mount, "name": name, "readOnly": True}
