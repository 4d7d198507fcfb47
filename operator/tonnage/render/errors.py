"""What a user can ask for that no pod can be made of."""


class RenderError(ValueError):
    """A spec that cannot become pods: the message names the field, what was found, what to do."""


class ForbiddenMetadataError(RenderError):
    """A label or annotation of the pods that is not the user's to set."""

    def __init__(self, field: str, key: str, why: str) -> None:
        super().__init__(f"{field}: key {key!r} is refused, because {why}; remove it")
        self.field = field
        self.key = key


class ReservedArgumentError(RenderError):
    """An argument of `vllm serve` that Tonnage sets itself."""

    def __init__(self, field: str, argument: str, instead: str) -> None:
        super().__init__(f"{field}: argument {argument!r} is set by Tonnage; use {instead} instead")
        self.field = field
        self.argument = argument


class ReservedVariableError(RenderError):
    """A variable by which a container would get GPUs that are not its own."""

    def __init__(self, field: str, variable: str) -> None:
        super().__init__(
            f"{field}: variable {variable!r} is refused, because it decides which GPUs of the node"
            " the container gets, and that is the device plugin's to say; remove it"
        )
        self.field = field
        self.variable = variable


class ResourceError(RenderError):
    """A request above its own limit, which no API server takes."""

    def __init__(self, field: str, request: str, limit: str) -> None:
        super().__init__(
            f"{field}: request {request} is above limit {limit}; lower it or raise the limit"
        )
        self.field = field


class VolumeError(RenderError):
    """A volume or mount that clashes with another one, or that has no counterpart."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
