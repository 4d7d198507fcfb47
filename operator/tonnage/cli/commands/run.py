"""`tonnage run`: runs the operator, inside or outside a cluster."""

import argparse

from tonnage.cli.errors import InputError
from tonnage.cli.sources.fleet_file import read_fleet_file
from tonnage.controller import settings as operator_settings
from tonnage.controller.garbage_collection import set_gc_thresholds
from tonnage.controller.log_lines import configure_logging
from tonnage.controller.settings import SettingsError, settings_from
from tonnage.manager.exit_watchdog import run_with_exit_watchdog
from tonnage.manager.loop import build_loop
from tonnage.manager.process import run_operator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the settings of the operator."""
    operator_settings.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; any other end has an exit code other than 0."""
    try:
        settings = settings_from(options)
    except SettingsError as error:
        raise InputError(str(error)) from None
    set_gc_thresholds()
    configure_logging(settings.log_level, settings.log_format, settings.secrets)
    return run_with_exit_watchdog(run_operator(settings, build_loop, read_fleet_file))
