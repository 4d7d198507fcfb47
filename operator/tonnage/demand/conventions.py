"""Defaults of other autoscalers and of a measured day of load, from the catalogue's data file."""

from functools import lru_cache
from typing import Annotated

from pydantic import Field

from tonnage.catalog.data_files import Entry, read_data_file

Seconds = Annotated[float, Field(ge=0)]


class Conventions(Entry):
    """The fields of autoscaling.yaml, which explains them and names their sources."""

    spare: Annotated[float, Field(ge=0, lt=1)]
    most_busy: Annotated[float, Field(gt=0, le=1)]
    queue_seconds: Annotated[float, Field(gt=0)]
    usual_slowdown: Annotated[float, Field(ge=1)]
    growth_factor: Annotated[int, Field(ge=1)]
    growth_replicas: Annotated[int, Field(ge=1)]
    scale_up_window_seconds: Seconds
    scale_down_window_seconds: Seconds
    scale_to_zero_after_seconds: Seconds
    shortest_queue: Annotated[float, Field(gt=0)]


@lru_cache(maxsize=1)
def load_conventions() -> Conventions:
    """Read autoscaling.yaml of this package once.

    Raises pydantic.ValidationError if the data file breaks its schema.
    """
    return Conventions.model_validate(read_data_file("autoscaling.yaml"))
