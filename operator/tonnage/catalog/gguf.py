"""How large a weight is in a GGUF file: the format tells it in the file's name."""

import re
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Final

from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.schema import Entry

_TYPE: Final = re.compile(r"(?:^|[-_.])(Q[2-8]_(?:[01]|K(?:_[SML])?))(?=$|[-_.])", re.IGNORECASE)


class GgufFile(Entry):
    """gguf.yaml."""

    compiled: date
    bits_per_weight: Mapping[str, float]


def gguf_bits_per_weight(name: str) -> float | None:
    """Bits of one weight on average in a file or model of that name, None when it tells no type."""
    found = _TYPE.findall(name)
    return _load().get(found[-1].upper()) if found else None


@lru_cache(maxsize=1)
def _load() -> Mapping[str, float]:
    return GgufFile.model_validate(read_data_file("gguf.yaml")).bits_per_weight
