"""Properties are tried on the same examples everywhere, so that a change is judged by what it
changes and not by chance, nor by how busy the machine is: none has to be quick by the clock. New
examples are looked for by `make explore`."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("TONNAGE_PROPERTIES", "same"))
