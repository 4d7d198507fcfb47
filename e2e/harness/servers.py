"""The command lines of the servers of one stack, and how each one says that it is ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PORTS = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "kubelet",
)
# Taints of devices in ResourceSlices: on by default from Kubernetes 1.36.
_KUBECONFIG_OF = {
    "kube-controller-manager": "system:kube-controller-manager",
    "kube-scheduler": "system:kube-scheduler",
    "kwok": "e2e:kwok",
}


@dataclass(frozen=True)
class Layout:
    """The files of a stack below its folder."""

    root: Path

    @property
    def state(self) -> Path:
        """What the supervisor last said about itself."""
        return self.root / "state.json"

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Keys, tokens and the server's certificate."""
        return self.root / "pki"

    @property
    def audit(self) -> Path:
        """One line for every request, at level Metadata."""
        return self.root / "audit.log"

    def log(self, name: str) -> Path:
        """Return the log of one server."""
        return self.root / "logs" / f"{name}.log"

    def kubeconfig_of(self, server: str) -> Path:
        """Return the kubeconfig that one of the servers uses."""
        return self.pki / f"{server}.kubeconfig"


@dataclass(frozen=True, slots=True)
class Options:
    """What differs between stacks: feature gates that are on in addition to Kubernetes' defaults,
    and versions of APIs that are not served: only resource.k8s.io/v1 is tried, without which the
    scheduler of Kubernetes 1.35 schedules nothing."""

    features: tuple[str, ...] = ("DRADeviceTaints",)
    unserved: tuple[str, ...] = ()

    @property
    def feature_gates(self) -> str:
        """The flag of servers that know feature gates."""
        return "--feature-gates=" + ",".join(f"{name}=true" for name in self.features)


@dataclass(frozen=True, slots=True)
class Server:
    """One process: its command, and the health address that answers 200 when it is ready."""

    name: str
    command: tuple[str, ...]
    health: str


def _etcd(binary: Path, layout: Layout, ports: Mapping[str, int]) -> Server:
    client = f"http://127.0.0.1:{ports['etcd']}"
    peer = f"http://127.0.0.1:{ports['etcd-peer']}"
    command = (
        str(binary),
        f"--data-dir={layout.root / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
    )
    return Server("etcd", command, f"{client}/readyz")


def _apiserver(binary: Path, layout: Layout, ports: Mapping[str, int], options: Options) -> Server:
    pki, port = layout.pki, ports["kube-apiserver"]
    key = pki / "service-accounts.key"
    command = (
        str(binary),
        f"--etcd-servers=http://127.0.0.1:{ports['etcd']}",
        f"--cert-dir={pki}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        # Without these two the server looks for a public address and fails on a host with none.
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        # The authorizer of kubelets waits for ResourceSlices, and no kubelet runs here.
        f"--authorization-mode={'RBAC' if options.unserved else 'Node,RBAC'}",
        f"--token-auth-file={pki / 'tokens.csv'}",
        # The kubelet port of every node is our log endpoint on loopback.
        "--kubelet-preferred-address-types=InternalIP",
        f"--audit-policy-file={Path(__file__).parents[1] / 'kwok' / 'audit-policy.yaml'}",
        f"--audit-log-path={layout.audit}",
        "--audit-log-mode=blocking",  # a request that was answered is in the file
        "--audit-log-maxsize=4096",
        options.feature_gates,
        "--allow-privileged=true",  # as distributions set it: admission refuses privilege
        "--profiling=false",
        *(f"--runtime-config={version}=false" for version in options.unserved),
    )
    return Server("kube-apiserver", command, f"https://127.0.0.1:{port}/readyz")


def _controller_manager(
    binary: Path, layout: Layout, ports: Mapping[str, int], options: Options
) -> Server:
    name = "kube-controller-manager"
    kubeconfig = layout.kubeconfig_of(name)
    command = (
        str(binary),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports[name]}",
        f"--cert-dir={layout.pki / name}",
        "--controllers=*",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={layout.pki / 'service-accounts.key'}",
        f"--root-ca-file={layout.pki / 'apiserver.crt'}",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        # A node that reports itself not ready is tainted within a second instead of five. No node
        # is lost for want of a heartbeat, since KWOK renews no lease here (see there). Tests lose a
        # node by its label (`lost_nodes`).
        "--node-monitor-period=1s",
        "--node-monitor-grace-period=24h",
        # A zone taints ten nodes that are not ready a second instead of one in ten seconds.
        "--node-eviction-rate=10",
        options.feature_gates,
        # An autoscaler looks at its metrics every second instead of every 15.
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--profiling=false",
    )
    return Server(name, command, f"https://127.0.0.1:{ports[name]}/healthz")


def _scheduler(binary: Path, layout: Layout, ports: Mapping[str, int], options: Options) -> Server:
    name = "kube-scheduler"
    kubeconfig = layout.kubeconfig_of(name)
    command = (
        str(binary),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports[name]}",
        f"--cert-dir={layout.pki / name}",
        "--leader-elect=false",
        options.feature_gates,
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--profiling=false",
    )
    # Without ResourceSlices it is never ready, and schedules nothing.
    health = "livez" if options.unserved else "readyz"
    return Server(name, command, f"https://127.0.0.1:{ports[name]}/{health}")


def _kwok(binary: Path, layout: Layout, ports: Mapping[str, int]) -> Server:
    command = (
        str(binary),
        f"--kubeconfig={layout.kubeconfig_of('kwok')}",
        f"--config={layout.root / 'kwok.yaml'}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        # No leases. KWOK v0.7.0 leaves the pods of a node alone while it holds no lease of it, and
        # a node that is deleted and soon created again loses its lease: the garbage collector
        # deletes what the former node owned. If that meets a renewal, no lease ever follows.
        "--node-lease-duration-seconds=0",
        # For tests of networks (RFC 2544): no request to such an address is answered.
        "--cidr=198.18.0.1/16",
        "--node-ip=127.0.0.1",
        f"--node-port={ports['kubelet']}",
        f"--server-address=127.0.0.1:{ports['kwok']}",
    )
    return Server("kwok", command, f"http://127.0.0.1:{ports['kwok']}/healthz")


def servers(
    binaries: Mapping[str, Path], layout: Layout, ports: Mapping[str, int], options: Options
) -> tuple[Server, ...]:
    """Return the servers in the order in which they are started."""
    makers = {
        "kube-apiserver": _apiserver,
        "kube-controller-manager": _controller_manager,
        "kube-scheduler": _scheduler,
    }
    return (
        _etcd(binaries["etcd"], layout, ports),
        *(make(binaries[name], layout, ports, options) for name, make in makers.items()),
        _kwok(binaries["kwok"], layout, ports),
    )


def kubeconfig_users() -> Mapping[str, str]:
    """Return which user each server speaks as."""
    return _KUBECONFIG_OF
