"""The programs that tests and benchmarks run on, as pinned Go modules in `go/`, in two groups.

The control plane is what workloads run on: Kubernetes, nodes, and the controller of
LeaderWorkerSets. The delivery tools are what a platform team installs and watches with: they take
minutes more to build, and only tests of delivery ask for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.harness.failure import HarnessError

_MODULES = Path(__file__).parents[1] / "go"


@dataclass(frozen=True)
class Tool:
    """One Go module of ours, what it pins and which programs its build yields."""

    name: str
    module: str
    programs: Mapping[str, str]  # program -> name of the binary that `go build` writes
    stamp: tuple[str, ...] = ()  # variables that the upstream release build sets
    tags: tuple[str, ...] = ()  # build tags
    ask: tuple[str, ...] = ("--version",)  # arguments that make its programs tell their version
    numbering: tuple[str, str] = ("", "")  # module version -> release, as pattern and replacement

    @property
    def folder(self) -> Path:
        """The folder of its go.mod."""
        return _MODULES / self.name

    @property
    def version(self) -> str:
        """The pinned version, read from go.mod so that it stands in one place."""
        text = (self.folder / "go.mod").read_text(encoding="utf-8")
        match = re.search(
            rf"^\s*(?:require\s+)?{re.escape(self.module)} (v\S+)", text, re.MULTILINE
        )
        if not match:
            raise HarnessError(f"{self.folder / 'go.mod'}: no version of {self.module} is pinned")
        return match[1]

    @property
    def build(self) -> str:
        """What tells one build from another: the program, its version, and its tags."""
        return "-".join((self.name, self.version, *self.tags))

    @property
    def release(self) -> str:
        """The version that its programs call themselves, as `v3.13.5` for a module v0.313.5."""
        return re.sub(*self.numbering, self.version)

    @property
    def minor(self) -> str:
        """The pinned release without its patch, as `1.35`."""
        return ".".join(self.release.lstrip("v").split(".")[:2])

    def linker_flags(self) -> str:
        """Flags that make a program name its version; without them it calls itself v0.0.0."""
        major, minor = self.minor.split(".")
        number = self.release.removeprefix("v")
        values = {"version": self.release, "number": number, "major": major, "minor": minor}
        return " ".join(["-s", "-w", *(f"-X {line.format(**values)}" for line in self.stamp)])


CONTROL_PLANE = (
    Tool("etcd", "go.etcd.io/etcd/server/v3", {"etcd": "server"}),
    Tool(
        "kwok",
        "sigs.k8s.io/kwok",
        {"kwok": "kwok"},
        stamp=("sigs.k8s.io/kwok/pkg/consts.Version={version}",),
    ),
    Tool(
        "kubernetes",
        "k8s.io/kubernetes",
        {
            name: name
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubectl",
            )
        },
        stamp=(
            "k8s.io/component-base/version.gitVersion={version}",
            "k8s.io/component-base/version.gitMajor={major}",
            "k8s.io/component-base/version.gitMinor={minor}",
        ),
    ),
    Tool(
        "lws",
        "sigs.k8s.io/lws",
        {"lws-controller": "cmd"},
        stamp=("sigs.k8s.io/lws/pkg/version.GitVersion={version}",),
    ),
)

DELIVERY = (
    Tool(
        "helm",
        "helm.sh/helm/v4",
        {"helm": "helm"},
        stamp=("helm.sh/helm/v4/internal/version.version={version}",),
        ask=("version", "--short"),
    ),
    Tool(
        "prometheus",
        "github.com/prometheus/prometheus",
        {"promtool": "promtool", "prometheus": "prometheus"},
        stamp=("github.com/prometheus/common/version.Version={number}",),
        # Of the ways to find targets this one alone: the clouds' clients are most of a build.
        tags=("remove_all_sd", "enable_kubernetes_sd"),
        numbering=(r"^v0\.(\d)0?(\d+)\.", r"v\1.\2."),
    ),
    Tool(
        "prometheus-operator",
        "github.com/prometheus-operator/prometheus-operator",
        {"prometheus-operator": "operator"},
        stamp=("github.com/prometheus/common/version.Version={version}",),
    ),
    Tool(
        "argo-cd",
        "github.com/argoproj/argo-cd/v3",
        {"argocd": "cmd"},
        stamp=("github.com/argoproj/argo-cd/v3/common.version={number}",),
        ask=("version", "--client", "--short"),
    ),
)

TOOLS = CONTROL_PLANE + DELIVERY
"""What tests run on."""

PROGRAMS = {program: tool for tool in TOOLS for program in tool.programs}
