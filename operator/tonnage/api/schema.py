"""Base classes and types of the API models."""

from typing import Annotated, Any, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticKnownError


class ApiModel(BaseModel):
    """A part of an API object. Instances are immutable and compare by value."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        # A field's docstring becomes its OpenAPI description, which `kubectl explain` prints.
        use_attribute_docstrings=True,
        # A value can be a secret; `api.parse` shows the others.
        hide_input_in_errors=True,
        # Build a validator when it is first used: most commands use few of them.
        defer_build=True,
    )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return the immutable object itself: pydantic copies defaults for each object that it
        parses, which took two thirds of the time."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """The object as the API server accepts it: camelCase keys, no unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ReportedModel(ApiModel):
    """A part of a status. It ignores unknown fields, so that the operator can read a status that a
    newer version wrote."""

    model_config = ConfigDict(extra="ignore")


class ExactlyOne(ApiModel):
    """A model of which exactly one optional field must be set.

    The CRD has the same rule in CEL, so that the API server rejects a wrong object.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Add the rule for the fields of each subclass to its schema."""
        super().__pydantic_init_subclass__(**kwargs)
        names = cls._choices().values()
        listed = ", ".join(f"has(self.{name})" for name in names)
        cls.model_config["json_schema_extra"] = {
            "x-kubernetes-validations": [
                {
                    "rule": f"[{listed}].exists_one(isSet, isSet)",
                    "message": f"set exactly one of {', '.join(names)}",
                }
            ]
        }

    @classmethod
    def _choices(cls) -> dict[str, str]:
        """Aliases of the optional fields, by their names."""
        return {
            name: field.alias or name
            for name, field in cls.model_fields.items()
            if not field.is_required() and field.default is None
        }

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        choices = self._choices()
        chosen = [alias for name, alias in choices.items() if getattr(self, name) is not None]
        if len(chosen) != 1:
            problem = f"found {', '.join(chosen)}" if chosen else "found none"
            raise ValueError(f"set exactly one of {', '.join(choices.values())}; {problem}")
        return self


Duration = Annotated[
    str, StringConstraints(pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$", max_length=32)
]
"""A duration in Kubernetes format, for example 90s, 10m, 1h30m."""

PositiveDuration = Annotated[
    str,
    StringConstraints(
        pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))*"
        r"([0-9]*[1-9][0-9]*(\.[0-9]+)?|[0-9]+\.[0-9]*[1-9][0-9]*)(ms|s|m|h)"
        r"([0-9]+(\.[0-9]+)?(ms|s|m|h))*$",
        max_length=32,
    ),
]
"""A duration above 0: at least one digit is not 0."""

Moment = Annotated[
    str,
    StringConstraints(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
        r"(Z|[+-][0-9]{2}:[0-9]{2})$",
        max_length=40,
    ),
]
"""A time in RFC 3339, for example 2026-11-22T05:30:00Z."""

PlanHash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""Hash of a plan: 16 hexadecimal digits."""

Money = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}(\.[0-9]{1,6})?$")]
"""An amount in US dollars as a decimal string; a float would change the user's value."""


def _refuse_non_numbers(value: object) -> object:
    if isinstance(value, bool | str):
        raise PydanticKnownError("float_type")
    return value


STRICT_NUMBER: Final = BeforeValidator(_refuse_non_numbers)
"""Rejects "2" and true, as the API server does, so that `tonnage plan` accepts the same files. Both
accept 2.0 as an integer."""

Fraction = Annotated[float, Field(gt=0, le=1), STRICT_NUMBER]
"""A fraction above 0 and at most 1."""

PartialFraction = Annotated[float, Field(gt=0, lt=1), STRICT_NUMBER]
"""A fraction above 0 that leaves something: below 1."""

UNION_TAGS: Final = ("(text)", "(object)")
"""Tags of a union of a text and an object, which are no part of a field's path in messages."""

PositiveInt = Annotated[int, Field(ge=1, le=2**31 - 1), STRICT_NUMBER]
TokenCount = Annotated[int, Field(ge=1, le=100_000_000), STRICT_NUMBER]
