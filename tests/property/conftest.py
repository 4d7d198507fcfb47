"""Properties are tried on the same examples everywhere, so that a change is judged by what it
changes and not by chance. New examples are looked for by `make explore`."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("same", derandomize=True)
settings.register_profile(
    "explore", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("TONNAGE_PROPERTIES", "same"))
