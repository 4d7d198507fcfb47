"""A replica of the operator whose loop does next to nothing: for tests of the process around it.

Each reconcile leaves a ConfigMap `<name>-seen`; the reservations and the pools are only in the log.
"""

import argparse
import logging
import sys

from tonnage.cli.sources.fleet_file import read_fleet_file
from tonnage.controller.log_lines import configure_logging
from tonnage.controller.settings import add_arguments, settings_from
from tonnage.kube.kinds import CONFIG_MAPS, INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import NotFoundError
from tonnage.manager.exit_watchdog import run_with_exit_watchdog
from tonnage.manager.process import run_operator
from tonnage.manager.work import LoopDependencies, Work
from tonnage.reconcile.key import Key, Requeue

_log = logging.getLogger("tonnage.replica")


def build_work(dependencies: LoopDependencies) -> Work:
    api, fleet = dependencies.api, dependencies.fleet

    async def reconcile(key: Key) -> Requeue:
        try:
            await api.get(INFERENCE_DEPLOYMENTS, key.namespace, key.name)
        except NotFoundError:
            return Requeue()
        seen = {"name": f"{key.name}-seen", "namespace": key.namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": seen, "data": {"seen": "yes"}}
        await api.apply(CONFIG_MAPS, body)
        return Requeue()

    async def rebuild_state() -> None:
        _log.info("primed")

    async def on_fleet_change() -> None:
        nodes = sorted(node.name for node in fleet.view().snapshot().nodes)
        _log.info("fleet", extra={"nodes": nodes, "pods": len(fleet.view().snapshot().pods)})

    return Work(reconcile, rebuild_state, on_fleet_change)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    settings = settings_from(parser.parse_args())
    configure_logging(settings.log_level, settings.log_format)
    # As `tonnage run` ends: a watch of kopf may outlive its cancellation.
    sys.exit(run_with_exit_watchdog(run_operator(settings, build_work, read_fleet_file)))
