"""The uncertainty of the KV cache's memory."""

import math
from dataclasses import replace

from tonnage.catalog.model import Vendor
from tonnage.catalog.vllm.profiling import Uncertainty
from tonnage.fit.activation.peak import ActivationPeak
from tonnage.fit.calibration.corrections import MemoryCorrection, Origin


def band_bytes(
    vendor: Vendor, weights: int, activation: ActivationPeak, graphs: int, uncertainty: Uncertainty
) -> int:
    """The 90th-percentile errors of the terms, added as independent errors."""
    language = activation.total_bytes - activation.encoder_bytes
    return int(
        math.hypot(
            weights * uncertainty.weights_share,
            language * uncertainty.activation_share + uncertainty.activation_bytes,
            activation.encoder_bytes * uncertainty.encoder_share,
            uncertainty.non_torch_bytes[vendor],
            graphs * uncertainty.graph_share,
        )
    )


def remaining_uncertainty(
    uncertainty: Uncertainty, correction: MemoryCorrection | None
) -> Uncertainty:
    """The uncertainty that remains after a correction.

    The errors of weights and non-torch memory are the same at every start, so a measured KV cache
    includes them. Those of activation and graphs follow the batch. A failed start measures none.
    """
    if correction is None or correction.origin is not Origin.MEASUREMENT:
        return uncertainty
    return replace(
        uncertainty,
        weights_share=0.0,
        non_torch_bytes=dict.fromkeys(uncertainty.non_torch_bytes, 0),
    )
