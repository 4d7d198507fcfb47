"""A replica that lists every few seconds, and can be deaf: no event of a kind comes from its watch.

python -m tests.support.impatient_replica [--deaf-to PLURAL] [flags of the operator]
"""

import argparse
import asyncio
import sys
from unittest.mock import patch

from tests.support.replica import build_work
from tonnage.cli.fleet_file import read_fleet_file
from tonnage.kube.protocol import Kind, Object
from tonnage.runtime.log_lines import configure_logging
from tonnage.runtime.settings import add_arguments, settings_from
from tonnage.watch import missed_changes, process, router
from tonnage.watch.router import EventRouter

LIST_SECONDS, LATE_SECONDS = 4.0, 1.5


def deafen(plural: str) -> None:
    """Let no event of a kind through after those of the watch's own first list."""
    route = EventRouter.route

    def heard(self: EventRouter, kind: Kind, event_type: str | None, obj: Object) -> None:
        if kind.plural != plural or event_type is None:
            route(self, kind, event_type, obj)

    patch.object(router.EventRouter, "route", heard).start()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--deaf-to", default="")
    add_arguments(parser)
    options = parser.parse_args()
    process.FLEET_LIST_SECONDS = process.RESYNC_SECONDS = LIST_SECONDS  # type: ignore[misc]
    process.RELIST_SETTLE_SECONDS = 0.1  # type: ignore[misc]
    missed_changes.LATE_SECONDS = LATE_SECONDS  # type: ignore[misc]
    deafen(options.deaf_to)
    settings = settings_from(options)
    configure_logging(settings.log_level, settings.log_format)
    sys.exit(asyncio.run(process.run_operator(settings, build_work, read_fleet_file)))
