"""A replica that compares its stores with lists every few seconds, and can be deaf to a kind.

python -m tests.support.impatient_replica [--deaf-to PLURAL] [flags of the operator]
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator
from unittest.mock import patch

from tests.support.replica import build_work
from tonnage import delays
from tonnage.cli.sources.fleet_file import read_fleet_file
from tonnage.controller.log_lines import configure_logging
from tonnage.controller.settings import add_arguments, settings_from
from tonnage.kube.client import AioKubeApi
from tonnage.kube.protocol import ObjectParts, Selection, WatchEvent
from tonnage.manager import process

LIST_SECONDS, LATE_SECONDS = 4.0, 1.5


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
    delays.VERIFY_BATCH = 0.1  # type: ignore[misc] # the same
    delays.LIST_EVENT_DUE = LATE_SECONDS  # type: ignore[misc] # the same
    deafen(options.deaf_to)
    settings = settings_from(options)
    configure_logging(settings.log_level, settings.log_format)
    sys.exit(asyncio.run(process.run_operator(settings, build_work, read_fleet_file)))
