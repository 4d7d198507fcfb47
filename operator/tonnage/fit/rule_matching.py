"""Whether a compatibility rule speaks of a model on a device: the facts it can ask for."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tonnage.catalog.architectures import ServedStatus
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.engine import EngineRelease
from tonnage.catalog.model import Accelerator
from tonnage.catalog.quantization_methods import MethodStatus, QuantizationMethods
from tonnage.catalog.rules import Conditions
from tonnage.checkpoint.model import ModelShape, Quantization
from tonnage.fit.model import EngineOptions
from tonnage.fit.precision import online_quantization, weight_format

_AUTO: Final = "auto"
_ROCM_ARCHS: Final = "gfx*"
_CUDA_PREFIX: Final = "sm_"
_MAX_SHOWN_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class Subject:
    """A model that is to run in a certain way on a device, as the conditions of rules see it.

    `method` is the quantisation under vLLM's name for it, None for 16 bits; `statuses` is what
    the release makes of it there, `weights` the format the weights are loaded in.
    """

    shape: ModelShape
    accelerator: Accelerator
    options: EngineOptions
    version: str
    served: ServedStatus
    method: str | None
    statuses: frozenset[MethodStatus]
    weights: str
    quantization: Quantization | None


def describe_subject(
    shape: ModelShape, accelerator: Accelerator, options: EngineOptions, catalog: Catalog
) -> Subject:
    """The facts that rules ask for. Raises ValueError for a vLLM version that is none."""
    release, methods = catalog.release(options.vllm_version), catalog.quantization_methods
    version = release.version
    quantization = shape.quantization or online_quantization(options, release)
    stored = shape.quantization.method if shape.quantization else None
    named = options.quantization if options.quantization != _AUTO else stored
    found = methods.resolve(named, version) if named else None
    statuses = set() if named is None else _statuses(named, accelerator, version, methods)
    statuses |= _contradictions(stored, options, release, methods)
    return Subject(
        shape=shape,
        accelerator=accelerator,
        options=options,
        version=version,
        served=catalog.architectures.status(shape.architecture, version),
        method=found[0] if found else named,
        statuses=frozenset(statuses),
        weights=weight_format(quantization),
        quantization=quantization,
    )


def covers(when: Conditions, subject: Subject) -> bool:
    """Whether all conditions hold; those that most rules fail by come first."""
    return (
        _covers_weights(when, subject)
        and _covers_model(when, subject)
        and _covers_device(when, subject.accelerator)
        and when.covers_release(subject.version)
    )


def fill(sentence: str, subject: Subject, catalog: Catalog) -> str:
    """A rule's sentence with the facts in place of `{accelerator}`, `{method}` and so on."""
    found = catalog.quantization_methods.methods.get(subject.method or "")
    architecture, known = subject.shape.architecture, catalog.architectures
    accelerator = subject.accelerator
    values = {
        "accelerator": accelerator.name,
        "arch": accelerator.arch,
        "unsupported_reason": accelerator.unsupported_reason or "no vLLM release runs on it",
        "version": subject.version,
        "architecture": architecture,
        "architecture_last": known.removed.get(architecture),
        "architecture_plugin": known.plugins.get(architecture),
        "method": subject.method,
        "method_first": found.known.since if found else None,
        "method_last": found.known.until if found else None,
        "method_plugin": found.plugin if found else None,
        "method_capability": found.minimum_capability if found else None,
        "stored_method": subject.shape.quantization and subject.shape.quantization.method,
        "online_methods": ", ".join(sorted(catalog.release(subject.version).online_quantization)),
        "kv_cache_dtype": subject.options.kv_cache_dtype,
    }
    shown = {name: str(value)[:_MAX_SHOWN_CHARS] for name, value in values.items()}
    return sentence.format_map(shown)


def _statuses(
    named: str, accelerator: Accelerator, version: str, methods: QuantizationMethods
) -> set[MethodStatus]:
    """What the release makes of the method in general and on this device."""
    resolved = methods.resolve(named, version)
    if resolved is None:
        return {MethodStatus.UNKNOWN}
    _, method = resolved
    found = {method.status(version)}
    if found != {MethodStatus.SERVED}:
        return found
    if method.deprecated is not None and method.deprecated.covers(version):
        found.add(MethodStatus.DEPRECATED)
    rocm = fnmatchcase(accelerator.arch, _ROCM_ARCHS)
    if rocm and not (method.rocm is not None and method.rocm.covers(version)):
        found.add(MethodStatus.UNLISTED)
    capability = _cuda_capability(accelerator.arch)
    if capability is not None and capability < (method.minimum_capability or 0):
        found.add(MethodStatus.BELOW_CAPABILITY)
    return found


def _contradictions(
    stored: str | None,
    options: EngineOptions,
    release: EngineRelease,
    methods: QuantizationMethods,
) -> set[MethodStatus]:
    """`--quantization` must be the checkpoint's method, or one that quantises while loading.

    Source: vllm/config/model.py _verify_quantization.
    """
    asked = options.quantization
    if asked == _AUTO:
        return set()
    if stored is not None:
        return set() if methods.same(asked, stored) else {MethodStatus.MISMATCHED}
    return set() if asked in release.online_quantization else {MethodStatus.NOT_ONLINE}


def _cuda_capability(arch: str) -> int | None:
    """90 for sm_90, None for what is not CUDA."""
    digits = arch.removeprefix(_CUDA_PREFIX)
    return int(digits) if arch.startswith(_CUDA_PREFIX) and digits.isdecimal() else None


def _covers_device(when: Conditions, accelerator: Accelerator) -> bool:
    capability = _cuda_capability(accelerator.arch)
    below = capability is not None and capability < (when.below_capability or 0)
    return (
        (when.archs is None or _matches(accelerator.arch, when.archs))
        and not (when.except_archs and _matches(accelerator.arch, when.except_archs))
        and (when.below_capability is None or below)
        and (when.accelerators is None or accelerator.id in when.accelerators)
        and when.unsupported_accelerator in (None, not accelerator.supported)
    )


def _matches(arch: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(arch, pattern) for pattern in patterns)


def _covers_weights(when: Conditions, subject: Subject) -> bool:
    stored = subject.quantization
    return bool(
        (when.methods is None or subject.method in when.methods)
        and (when.except_methods is None or subject.method not in when.except_methods)
        and (when.method_status is None or when.method_status in subject.statuses)
        and (when.weight_formats is None or subject.weights in when.weight_formats)
        and (when.activations is None or (stored and stored.activations in when.activations))
        and when.desc_act in (None, stored is not None and stored.desc_act)
    )


def _covers_model(when: Conditions, subject: Subject) -> bool:
    shape, dtype = subject.shape, subject.options.kv_cache_dtype
    latent, apart = shape.latent_attention, when.except_architectures
    sparse = latent is not None and (latent.sparse or latent.indexer is not None)
    return (
        (when.architectures is None or shape.architecture in when.architectures)
        and (apart is None or shape.architecture not in apart)
        and (when.served is None or subject.served is when.served)
        and (when.kv_cache_dtypes is None or dtype in when.kv_cache_dtypes)
        and when.latent_attention in (None, latent is not None)
        and when.sparse_attention in (None, sparse)
        and when.experts in (None, shape.experts is not None)
    )
