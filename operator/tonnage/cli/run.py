"""`tonnage run`: the operator itself, in a cluster or beside one."""

import argparse
from functools import partial

from tonnage.cli.errors import InputError
from tonnage.cli.fleet_file import read_fleet_file
from tonnage.runtime import settings as operator_settings
from tonnage.runtime.garbage import search_seldom
from tonnage.runtime.log_lines import configure_logging
from tonnage.runtime.settings import SettingsError, settings_from
from tonnage.watch.last_resort import run_to_the_end
from tonnage.watch.loop import build_loop
from tonnage.watch.process import run_operator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The operator's settings."""
    operator_settings.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; any other end has an exit code other than 0."""
    try:
        settings = settings_from(options)
    except SettingsError as error:
        raise InputError(str(error)) from None
    search_seldom()
    configure_logging(settings.log_level, settings.log_format, settings.secrets)
    return run_to_the_end(
        run_operator(settings, lambda scope: partial(build_loop, settings, scope), read_fleet_file)
    )
