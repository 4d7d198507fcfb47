"""How far the KV cache's memory may be off."""

import math

from tonnage.catalog.model import Vendor
from tonnage.catalog.profiling import Uncertainty
from tonnage.fit.activation import ActivationPeak


def band_bytes(
    vendor: Vendor, weights: int, activation: ActivationPeak, graphs: int, known: Uncertainty
) -> int:
    """The errors of the terms, each met nine times out of ten, added as independent ones."""
    language = activation.total_bytes - activation.encoder_bytes
    return int(
        math.hypot(
            weights * known.weights_share,
            language * known.activation_share + known.activation_bytes,
            activation.encoder_bytes * known.encoder_share,
            known.non_torch_bytes[vendor],
            graphs * known.graph_share,
        )
    )
