"""Bits per weight of a GGUF file, by the type in the file's name."""

import re
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Final

from tonnage.catalog.data_files import Entry, read_data_file

_TYPE: Final = re.compile(r"(?:^|[-_.])(Q[2-8]_(?:[01]|K(?:_[SML])?))(?=$|[-_.])", re.IGNORECASE)


class GgufFile(Entry):
    """gguf.yaml."""

    compiled: date
    bits_per_weight: Mapping[str, float]


def gguf_bits_per_weight(name: str) -> float | None:
    """Average bits per weight of a file or model by its name, None if the name has no type."""
    types = _TYPE.findall(name)
    return _load().get(types[-1].upper()) if types else None


@lru_cache(maxsize=1)
def _load() -> Mapping[str, float]:
    return GgufFile.model_validate(read_data_file("gguf.yaml")).bits_per_weight
