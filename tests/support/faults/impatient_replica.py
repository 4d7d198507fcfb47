"""A replica that compares its stores with lists every few seconds, and can be deaf to a kind.

python -m tests.support.faults.impatient_replica [--deaf-to PLURAL] [flags of the operator]
"""

import argparse
import sys
from collections.abc import AsyncGenerator
from unittest.mock import patch

from tests.support.faults.replica import build_work
from tonnage import delays
from tonnage.cli.sources.fleet_file import read_fleet_file
from tonnage.controller.log_lines import configure_logging
from tonnage.controller.settings import add_arguments, settings_from
from tonnage.kube.client import AioKubeApi
from tonnage.kube.protocol import ObjectParts, Selection, WatchEvent
from tonnage.manager import process
from tonnage.manager.exit_watchdog import run_with_exit_watchdog

LIST_SECONDS = 4.0
LATE_SECONDS, VERY_LATE_SECONDS = 1.5, 20.0
"""How late an event may be: where none ever comes, and where a busy machine delays it."""


def deafen(plural: str) -> None:
    """Let a watch of this kind bring bookmarks only."""
    watch = AioKubeApi.watch

    async def bring_bookmarks(
        self: AioKubeApi,
        selection: Selection,
        parts: ObjectParts,
        since: str,
        batch_seconds: float = 0.0,
    ) -> AsyncGenerator[WatchEvent, None]:
        async for event in watch(self, selection, parts, since, batch_seconds):
            if selection.kind.plural != plural or event.type == "BOOKMARK":
                yield event

    patch.object(AioKubeApi, "watch", bring_bookmarks).start()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--deaf-to", default="")
    add_arguments(parser)
    options = parser.parse_args()
    delays.VERIFY = delays.RESYNC = LIST_SECONDS  # type: ignore[misc] # Final, but for this process
    late_seconds = LATE_SECONDS if options.deaf_to else VERY_LATE_SECONDS
    delays.LIST_EVENT_DUE = late_seconds  # type: ignore[misc] # a Final, shortened for this process alone
    deafen(options.deaf_to)
    settings = settings_from(options)
    configure_logging(settings.log_level, settings.log_format)
    # As `tonnage run` ends: a watch of kopf may outlive its cancellation.
    sys.exit(run_with_exit_watchdog(process.run_operator(settings, build_work, read_fleet_file)))
