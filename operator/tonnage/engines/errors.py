"""Errors of a spec from which the operator cannot render pods."""

from typing import Final

from tonnage.api.text import truncate

_MAX_PATH_BYTES: Final = 200


class RenderError(ValueError):
    """A spec that cannot become pods. The message names the field, its value, and what to do."""


class PodTemplateError(RenderError):
    """A field of a podTemplate that must not be set so; `value` is None where it is not shown."""

    def __init__(self, field: str, value: str | None, instead: str) -> None:
        shown = "is refused" if value is None else f"{value} is refused"
        self.field = _show_path(field)
        super().__init__(f"{self.field}: {shown}: {instead}")


class ForbiddenMetadataError(RenderError):
    """A label or annotation of the pods that the user must not set."""

    def __init__(self, field: str, key: str, cause: str) -> None:
        super().__init__(f"{field}: key {key!r} is refused, because {cause}; remove it")
        self.field = field
        self.key = key


class LabelSyntaxError(RenderError):
    """A key or value of a label, annotation or toleration that Kubernetes does not take."""

    def __init__(self, field: str, value: str, expected: str) -> None:
        super().__init__(f"{field}: {value[:80]!r} is refused: expected {expected}")
        self.field = field


class ReservedArgumentError(RenderError):
    """An argument of the server that only the operator may set.

    `flag` is the full flag, of which the argument may be an abbreviation; `value` is the argument
    after it, "" where the flag has none or has it in the same item.
    """

    def __init__(self, field: str, argument: str, flag: str, value: str, instead: str) -> None:
        stands_for = "" if argument.startswith(flag) else f", which is {flag},"
        with_value = f" with the value {value[:80]!r}" if value else ""
        super().__init__(
            f"{field}: argument {argument[:80]!r}{with_value}{stands_for} is refused: {instead}"
        )
        self.field = field
        self.argument = argument


class ReservedVariableError(RenderError):
    """A variable by which a container would get GPUs that are not its own."""

    def __init__(self, field: str, variable: str) -> None:
        super().__init__(
            f"{field}: variable {variable!r} is refused, because it selects the container's GPUs,"
            " which the device plugin assigns; remove it"
        )
        self.field = field
        self.variable = variable


def _show_path(path: str) -> str:
    """The path of a field whose name may be any text."""
    return truncate(path.encode("ascii", "backslashreplace").decode(), _MAX_PATH_BYTES)


class ResourceError(RenderError):
    """A request above its own limit, which the API server would refuse."""

    def __init__(self, field: str, request: str, limit: str) -> None:
        super().__init__(
            f"{_show_path(field)}: request {request} is above limit {limit}; lower it or raise the"
            " limit"
        )
        self.field = field


class VolumeError(RenderError):
    """A volume or mount that clashes with another one, or a mount without a volume."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
