"""Connects to a cluster with the credentials of the user, to read it or to change specs."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NoReturn

from tonnage.cli.errors import InputError
from tonnage.kube.client import AioKubeApi
from tonnage.kube.connection import ConnectionConfigError, connect, context_namespace
from tonnage.kube.protocol import ApiError
from tonnage.kube.single_fields import SpecEditor
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Request, Transport

_REQUESTS_PER_SECOND: Final = 50.0
_REQUESTS_AT_ONCE: Final = 300
"""The limits of kubectl's client."""


@asynccontextmanager
async def open_reader(options: argparse.Namespace) -> AsyncIterator[AioKubeApi]:
    """A read-only client. Raises InputError, also for API errors while it is used."""
    try:
        async with connect(options.kubeconfig, options.context) as connection:
            yield AioKubeApi(
                Transport(connection.client, _ignore_request),
                before_write=_refuse_to_write,
                bucket=TokenBucket(_REQUESTS_PER_SECOND, _REQUESTS_AT_ONCE),
            )
    except ConnectionConfigError as error:
        raise InputError(str(error)) from None
    except ApiError as error:
        raise InputError(f"the cluster cannot be read: {error}") from None


@asynccontextmanager
async def open_editor(options: argparse.Namespace) -> AsyncIterator[SpecEditor]:
    """A client that changes specs with the user's credentials. Raises InputError if it cannot
    connect, and ApiError while it is used."""
    try:
        async with connect(options.kubeconfig, options.context) as connection:
            yield SpecEditor(Transport(connection.client, _ignore_request))
    except ConnectionConfigError as error:
        raise InputError(str(error)) from None


def read_context_namespace(options: argparse.Namespace) -> str | None:
    """The namespace of the context, None where it has none. Raises InputError."""
    try:
        return context_namespace(options.kubeconfig, options.context)
    except ConnectionConfigError as error:
        raise InputError(str(error)) from None


def _ignore_request(request: Request, code: str, seconds: float) -> None:
    """Record no metric: a command exposes none."""


def _refuse_to_write() -> NoReturn:
    raise AssertionError("the command line writes nothing to a cluster")
