"""What Kubernetes takes as keys and values of labels, and as keys of annotations and taints.

The API server would refuse the Deployment with such a mistake, not the InferenceDeployment. The CRD
does not state the patterns: a later schema takes all that an earlier one took.
"""

import re
from typing import Final

_MAX_PART: Final = 63
_MAX_PREFIX: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

NAME_SYNTAX: Final = (
    f"at most {_MAX_PART} letters, digits, '-', '_' and '.', with a letter or digit at both ends"
)
KEY_SYNTAX: Final = f"{NAME_SYNTAX}, after a DNS name and '/' or without it"


def is_label_key(text: str) -> bool:
    """Whether the text is a qualified name (k8s.io/apimachinery, pkg/util/validation)."""
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > _MAX_PREFIX or not _PREFIX.fullmatch(prefix)):
        return False
    return _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether the text is a value of a label or a taint."""
    return not text or _NAME.fullmatch(text) is not None
