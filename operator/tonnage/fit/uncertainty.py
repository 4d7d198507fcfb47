"""How far the KV cache's memory may be off."""

import math
from dataclasses import replace

from tonnage.catalog.model import Vendor
from tonnage.catalog.profiling import Uncertainty
from tonnage.fit.activation import ActivationPeak
from tonnage.fit.corrections import MemoryCorrection, Origin


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


def left_unknown(known: Uncertainty, correction: MemoryCorrection | None) -> Uncertainty:
    """What a correction leaves unknown. The errors of weights and non-torch memory are the same at
    every start, so a measured KV cache holds them; those of activation and graphs are not, since
    they follow the batch. A start that failed tells of none of them how large it is."""
    if correction is None or correction.origin is not Origin.MEASUREMENT:
        return known
    return replace(
        known, weights_share=0.0, non_torch_bytes=dict.fromkeys(known.non_torch_bytes, 0)
    )
