"""Reads the data files of this package as YAML, and the base of their schemas."""

from importlib import resources
from typing import Annotated, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(gt=0)]

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser, where PyYAML was built with it, takes a tenth of the time."""


class Entry(BaseModel):
    """A section of a data file; unknown keys are errors.

    pydantic builds the validator of a section when a file is read, which many commands never do.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def read_data_file(name: str) -> object:
    """The content of `catalog/data/<name>`; each caller validates the layout of its file."""
    text = resources.files("tonnage.catalog").joinpath("data", name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader, in C or in Python
