"""What a spec may not ask of its pods, found before anything is planned."""

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.render.arguments import check_arguments
from tonnage.render.environment import check_environment
from tonnage.render.metadata import check_metadata
from tonnage.render.resources import check_resources
from tonnage.render.volumes import check_volumes


def check_template(spec: InferenceDeploymentSpec) -> None:
    """Refuse what would clash with what Tonnage renders.

    Raises ForbiddenMetadataError, ReservedArgumentError, ReservedVariableError, ResourceError or
    VolumeError, each a RenderError that names the field and says what to do.
    """
    check_metadata(spec.template.metadata)
    check_arguments(spec)
    check_environment(spec)
    check_resources(spec.template.spec.resources)
    check_volumes(spec.template.spec)
