"""Registries from which images are taken instead, as a cluster without the Internet needs."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

Mirrors = tuple[tuple[str, str], ...]
"""Pairs of a prefix of image names, such as `vllm` of vllm/vllm-openai, and what replaces it."""

_PREFIX: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:/-]*[A-Za-z0-9])?")


def parse_mirrors(text: str) -> Mirrors:
    """Parse "vllm=registry.example.com/vllm,rocm=...". Raises ValueError."""
    pairs = [part.strip() for part in text.split(",") if part.strip()]
    mirrors = []
    for pair in pairs:
        source, _, mirror = pair.partition("=")
        if not _PREFIX.fullmatch(source) or not _PREFIX.fullmatch(mirror):
            raise ValueError(
                f"{pair!r} is not PREFIX=MIRROR, for example vllm=registry.example.com/vllm"
            )
        mirrors.append((source, mirror))
    return tuple(mirrors)


def use_mirror(image: str, *mirrors: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """The image by the name that it has on the mirror; unchanged where no prefix matches.

    Prefixes match the name as it is written, which may have no registry. Of several mirrors the
    first with a match decides, and of its prefixes the longest. A prefix ends where a part of the
    name ends: `vllm` does not match vllm-fork/x.
    """
    for each in mirrors:
        matches = [(source, mirror) for source, mirror in dict(each).items() if _has(image, source)]
        if matches:
            source, mirror = max(matches, key=lambda match: len(match[0]))
            return mirror + image[len(source) :]
    return image


def _has(name: str, prefix: str) -> bool:
    rest = name[len(prefix) :]
    return name.startswith(prefix) and (not rest or rest[0] in "/:@")
