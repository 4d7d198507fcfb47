"""Whether a compatibility rule covers a model on a device, and the facts that rules refer to."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.catalog.models.architectures import ServedStatus
from tonnage.catalog.rules import AdapterCondition, Conditions
from tonnage.catalog.vllm.lora import load_lora_support
from tonnage.catalog.vllm.quantization_methods import MethodStatus, QuantizationMethods
from tonnage.catalog.vllm.releases import EngineRelease
from tonnage.checkpoint.model import ModelShape, Quantization
from tonnage.fit.model import EngineOptions
from tonnage.fit.weights.precision import online_quantization, weight_format

_AUTO: Final = "auto"
_ROCM_ARCHS: Final = "gfx*"
_CUDA_PREFIX: Final = "sm_"
_MAX_SHOWN_CHARS: Final = 120


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with its options on a device, in the terms of the rules' conditions.

    `method` is vLLM's name of the quantisation, None for 16 bits; `statuses` describes how the
    release supports it on the device; `weights` is the format of the loaded weights.
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
    adapters: AdapterCondition | None


def describe_subject(
    shape: ModelShape, accelerator: Accelerator, options: EngineOptions, catalog: Catalog
) -> Subject:
    """Collects the facts that rules refer to. Raises ValueError for an invalid vLLM version."""
    release, methods = catalog.release(options.release), catalog.quantization_methods
    version = release.version
    quantization = shape.quantization or online_quantization(options, release)
    checkpoint_method = shape.quantization.method if shape.quantization else None
    method = options.quantization if options.quantization != _AUTO else checkpoint_method
    resolved = methods.resolve(method, version) if method else None
    statuses = set() if method is None else _statuses(method, accelerator, version, methods)
    statuses |= _contradictions(checkpoint_method, options, release, methods)
    return Subject(
        shape=shape,
        accelerator=accelerator,
        options=options,
        version=version,
        served=catalog.architectures.status(shape.architecture, version),
        method=resolved[0] if resolved else method,
        statuses=frozenset(statuses),
        weights=weight_format(quantization),
        quantization=quantization,
        adapters=_treats_adapters(shape, accelerator, options, catalog),
    )


def _treats_adapters(
    shape: ModelShape, accelerator: Accelerator, options: EngineOptions, catalog: Catalog
) -> AdapterCondition | None:
    """None without adapters. vLLM's Transformers backend loads them for classes without code."""
    if not options.enable_lora:
        return None
    name, support = shape.architecture, load_lora_support()
    loaded = support.takes_adapters(name, accelerator.vendor) or (
        name not in catalog.architectures.served
    )
    return AdapterCondition.LOADED if loaded else AdapterCondition.REFUSED


def covers(when: Conditions, subject: Subject) -> bool:
    """Whether all conditions hold; the conditions that fail most often come first."""
    return (
        _covers_weights(when, subject)
        and _covers_model(when, subject)
        and _covers_device(when, subject.accelerator)
        and when.covers_release(subject.version)
    )


def fill(sentence: str, subject: Subject, catalog: Catalog) -> str:
    """Replaces `{accelerator}`, `{method}` and so on in a rule's sentence by the facts."""
    method = catalog.quantization_methods.methods.get(subject.method or "")
    architecture, architectures = subject.shape.architecture, catalog.architectures
    accelerator = subject.accelerator
    values = {
        "accelerator": accelerator.name,
        "arch": accelerator.arch,
        "unsupported_reason": accelerator.unsupported_reason or "no vLLM release runs on it",
        "version": subject.version,
        "architecture": architecture,
        "architecture_last": architectures.removed.get(architecture),
        "architecture_plugin": architectures.plugins.get(architecture),
        "method": subject.method,
        "method_first": method.known.since if method else None,
        "method_last": method.known.until if method else None,
        "method_plugin": method.plugin if method else None,
        "method_capability": method.minimum_capability if method else None,
        "stored_method": subject.shape.quantization and subject.shape.quantization.method,
        "online_methods": ", ".join(sorted(catalog.release(subject.version).online_quantization)),
        "kv_cache_dtype": subject.options.kv_cache_dtype,
        "uncounted": next(iter(subject.options.uncounted), None),
    }
    facts = {name: str(value)[:_MAX_SHOWN_CHARS] for name, value in values.items()}
    return sentence.format_map(facts)


def _statuses(
    name: str, accelerator: Accelerator, version: str, methods: QuantizationMethods
) -> set[MethodStatus]:
    """How the release supports the method in general and on this device."""
    resolved = methods.resolve(name, version)
    if resolved is None:
        return {MethodStatus.UNKNOWN}
    _, method = resolved
    statuses = {method.status(version)}
    if statuses != {MethodStatus.SERVED}:
        return statuses
    if method.deprecated is not None and method.deprecated.covers(version):
        statuses.add(MethodStatus.DEPRECATED)
    rocm = fnmatchcase(accelerator.arch, _ROCM_ARCHS)
    if rocm and not (method.rocm is not None and method.rocm.covers(version)):
        statuses.add(MethodStatus.UNLISTED)
    capability = _cuda_capability(accelerator.arch)
    if capability is not None and capability < (method.minimum_capability or 0):
        statuses.add(MethodStatus.BELOW_CAPABILITY)
    return statuses


def _contradictions(
    checkpoint_method: str | None,
    options: EngineOptions,
    release: EngineRelease,
    methods: QuantizationMethods,
) -> set[MethodStatus]:
    """`--quantization` must be the checkpoint's method, or one that quantises while loading.

    Source: vllm/config/model.py _verify_quantization.
    """
    method = options.quantization
    if method == _AUTO:
        return set()
    if checkpoint_method is not None:
        same = methods.same(method, checkpoint_method)
        return set() if same else {MethodStatus.MISMATCHED}
    return set() if method in release.online_quantization else {MethodStatus.NOT_ONLINE}


def _cuda_capability(arch: str) -> int | None:
    """90 for sm_90, None for an architecture that is not CUDA."""
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
    quantization = subject.quantization
    return bool(
        (when.methods is None or subject.method in when.methods)
        and (when.except_methods is None or subject.method not in when.except_methods)
        and (when.method_status is None or when.method_status in subject.statuses)
        and (when.weight_formats is None or subject.weights in when.weight_formats)
        and (
            when.activations is None
            or (quantization and quantization.activations in when.activations)
        )
        and when.desc_act in (None, quantization is not None and quantization.desc_act)
    )


def _covers_model(when: Conditions, subject: Subject) -> bool:
    shape, dtype = subject.shape, subject.options.kv_cache_dtype
    latent, excepted = shape.latent_attention, when.except_architectures
    sparse = latent is not None and (latent.sparse or latent.indexer is not None)
    return (
        (when.architectures is None or shape.architecture in when.architectures)
        and (excepted is None or shape.architecture not in excepted)
        and (when.served is None or subject.served is when.served)
        and (when.kv_cache_dtypes is None or dtype in when.kv_cache_dtypes)
        and when.latent_attention in (None, latent is not None)
        and when.sparse_attention in (None, sparse)
        and when.experts in (None, shape.experts is not None)
        and when.uncounted_memory in (None, bool(subject.options.uncounted))
        and when.cuda_loader in (None, subject.options.cuda_loader)
        and when.adapters in (None, subject.adapters)
    )
