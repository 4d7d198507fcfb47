"""What does not run on a device though it may fit: the catalogue's rules applied to one model."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.engine import EngineRelease, parse_version
from tonnage.catalog.model import Accelerator
from tonnage.catalog.rules import CompatibilityRule, RuleAction
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.model import EngineOptions
from tonnage.fit.precision import online_quantization, weight_format


@dataclass(frozen=True, slots=True)
class Incompatible:
    """A rule that forbids the combination: its stable name and one sentence why.

    `overridable` says whether a user may name the rule in `spec.placement.allow`.
    """

    rule: str
    message: str
    overridable: bool = False


def check_compatibility(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    options: EngineOptions,
    allow: Collection[str],
    catalog: Catalog,
) -> Incompatible | None:
    """The first rule that forbids this model on this accelerator, None when none does.

    Overridable rules named in `allow` are passed over. Raises ValueError for a vLLM version that
    is none.
    """
    findings = _refusals(checkpoint, accelerator, options, catalog)
    return next((f for f in findings if not (f.overridable and f.rule in allow)), None)


def compatibility_warnings(
    checkpoint: Checkpoint, accelerator: Accelerator, options: EngineOptions, catalog: Catalog
) -> tuple[str, ...]:
    """One sentence for each rule that warns of this combination without forbidding it."""
    return tuple(
        f"{accelerator.name} {rule.message}"
        for rule in _matching(checkpoint, accelerator, options, catalog, RuleAction.WARN)
    )


def _refusals(
    checkpoint: Checkpoint, accelerator: Accelerator, options: EngineOptions, catalog: Catalog
) -> Iterator[Incompatible]:
    if not accelerator.supported:
        reason = accelerator.unsupported_reason or "no vLLM release runs on it"
        yield Incompatible("UnsupportedAccelerator", f"{accelerator.name}: {reason}")
    release = catalog.release(options.vllm_version)
    yield from _architecture_refusals(checkpoint.shape.architecture, release, catalog)
    yield from _method_refusals(checkpoint, options, release, catalog)
    for rule in _matching(checkpoint, accelerator, options, catalog, RuleAction.REJECT):
        message = f"{accelerator.name} {rule.message}"
        yield Incompatible(rule.name, message, rule.overridable)


def _architecture_refusals(
    name: str, release: EngineRelease, catalog: Catalog
) -> Iterator[Incompatible]:
    """Classes that the release no longer serves, or not by itself, or does not know."""
    known = catalog.architectures
    last = known.removed.get(name)
    if last is not None:
        if parse_version(release.version) > parse_version(last):
            yield Incompatible(
                "ArchitectureRemoved",
                f"vLLM {release.version} no longer serves {name}; the last release is v{last}",
            )
    elif name in known.plugins:
        yield Incompatible(
            "ArchitectureNeedsPlugin",
            f"{name} needs {known.plugins[name]}, which the vendor images do not contain",
            overridable=True,
        )
    elif name not in known.served:
        yield Incompatible(
            "ArchitectureUnknown",
            f"vLLM {release.version} has no implementation of {name}; allow ArchitectureUnknown to "
            "rely on its Transformers fallback",
            overridable=True,
        )


def _method_refusals(
    checkpoint: Checkpoint, options: EngineOptions, release: EngineRelease, catalog: Catalog
) -> Iterator[Incompatible]:
    """`--quantization` must be the checkpoint's method, or one that quantises while loading.

    Source: vllm/config/model.py _verify_quantization.
    """
    asked, stored = options.quantization, checkpoint.shape.quantization
    if asked == "auto":
        return
    if stored is not None:
        same = any(
            asked in family and stored.method in family for family in catalog.method_families
        )
        if asked != stored.method and not same:
            yield Incompatible(
                "QuantizationMismatch",
                f"quantization {asked} does not match the checkpoint's, {stored.method}; use auto",
            )
    elif asked not in release.online_quantization:
        known = ", ".join(sorted(release.online_quantization))
        yield Incompatible(
            "QuantizationMismatch",
            f"quantization {asked} needs a checkpoint quantised so; a 16-bit one can be loaded as "
            f"{known}",
        )


def _matching(
    checkpoint: Checkpoint,
    accelerator: Accelerator,
    options: EngineOptions,
    catalog: Catalog,
    action: RuleAction,
) -> Iterator[CompatibilityRule]:
    release = catalog.release(options.vllm_version)
    for rule in catalog.rules:
        if (
            rule.action is action
            and _covers_version(rule, release.version)
            and _covers_device(rule, accelerator)
            and _covers_model(rule, checkpoint, options, release)
        ):
            yield rule


def _covers_version(rule: CompatibilityRule, version: str) -> bool:
    numbers = parse_version(version)
    since = rule.since is None or parse_version(rule.since) <= numbers
    return since and (rule.until is None or numbers <= parse_version(rule.until))


def _covers_device(rule: CompatibilityRule, accelerator: Accelerator) -> bool:
    return (
        (rule.vendors is None or accelerator.vendor in rule.vendors)
        and (rule.accelerators is None or accelerator.id in rule.accelerators)
        and (rule.archs is None or any(fnmatchcase(accelerator.arch, arch) for arch in rule.archs))
    )


def _covers_model(
    rule: CompatibilityRule, checkpoint: Checkpoint, options: EngineOptions, release: EngineRelease
) -> bool:
    """Whether the rule speaks of what the weights will be, once vLLM has loaded them."""
    shape = checkpoint.shape
    stored = shape.quantization or online_quantization(options, release)
    method = stored.method if stored else None
    latent = shape.latent_attention is not None
    return (
        (rule.methods is None or method in rule.methods)
        and (rule.weight_formats is None or weight_format(stored) in rule.weight_formats)
        and (rule.kv_cache_dtypes is None or options.kv_cache_dtype in rule.kv_cache_dtypes)
        and (rule.architectures is None or shape.architecture in rule.architectures)
        and (rule.desc_act is None or rule.desc_act == (stored is not None and stored.desc_act))
        and (rule.latent_attention is None or rule.latent_attention == latent)
    )
