"""The base of all API models: camelCase outside, frozen inside, unknown fields refused."""

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
    """A piece of an API object; instances are immutable and compare by value."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        # A field's docstring becomes its OpenAPI description, which `kubectl explain` prints.
        use_attribute_docstrings=True,
        # A value may be a secret; `api.parse` shows those that cannot be one.
        hide_input_in_errors=True,
    )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Itself, since it never changes: pydantic copies defaults for each object that it reads,
        and that took two thirds of the reading."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """The object as the API server takes it: camelCase keys, unset fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ReportedModel(ApiModel):
    """A piece of a status. What a newer version wrote beside it is passed over, so that after a
    rollback the operator reads the rest: who waited, what moves, what was found."""

    model_config = ConfigDict(extra="ignore")


class ExactlyOne(ApiModel):
    """A choice: one field is set and all others are not.

    The same rule stands in the CRD as CEL, so that the API server refuses a wrong choice at once.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Write the rule into the schema of each subclass, over its own choices."""
        super().__pydantic_init_subclass__(**kwargs)
        names = cls._choices()
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
    def _choices(cls) -> list[str]:
        """Aliases of the fields that are choices: those that may be absent."""
        return [
            field.alias or name
            for name, field in cls.model_fields.items()
            if not field.is_required() and field.default is None
        ]

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        chosen = [name for name, value in self.to_dict().items() if name in self._choices()]
        if len(chosen) != 1:
            found = f"found {', '.join(chosen)}" if chosen else "found none"
            raise ValueError(f"set exactly one of {', '.join(self._choices())}; {found}")
        return self


Duration = Annotated[
    str, StringConstraints(pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$", max_length=32)
]
"""A duration as Kubernetes writes it, for example 90s, 10m, 1h30m."""

PositiveDuration = Annotated[
    str,
    StringConstraints(
        pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))*"
        r"([0-9]*[1-9][0-9]*(\.[0-9]+)?|[0-9]+\.[0-9]*[1-9][0-9]*)(ms|s|m|h)"
        r"([0-9]+(\.[0-9]+)?(ms|s|m|h))*$",
        max_length=32,
    ),
]
"""A duration above 0: one of its numbers has a digit that is not 0."""

Moment = Annotated[
    str,
    StringConstraints(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
        r"(Z|[+-][0-9]{2}:[0-9]{2})$",
        max_length=40,
    ),
]
"""A point in time as RFC 3339 writes it, for example 2026-11-22T05:30:00Z."""

PlanHash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""Names a plan by its content: 16 hexadecimal digits."""

Money = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}(\.[0-9]{1,6})?$")]
"""An amount in US dollars as a decimal string: a float would change what the user wrote."""


def _refuse_words(value: object) -> object:
    if isinstance(value, bool | str):
        raise PydanticKnownError("float_type")
    return value


AS_A_NUMBER: Final = BeforeValidator(_refuse_words)
"""Neither "2" nor true is 2: the API server takes them for no number, so what `tonnage plan` reads
from a file must not be one by them either. 2.0 is a whole number to both."""

Fraction = Annotated[float, Field(gt=0, le=1), AS_A_NUMBER]
"""A share above 0 and at most 1. A number, not a string, because vLLM's own flag takes one."""

PositiveInt = Annotated[int, Field(ge=1, le=2**31 - 1), AS_A_NUMBER]
TokenCount = Annotated[int, Field(ge=1, le=100_000_000), AS_A_NUMBER]
