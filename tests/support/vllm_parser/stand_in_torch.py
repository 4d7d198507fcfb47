"""A torch without tensors: all that vLLM's modules ask of it while they are imported.

The argument parser of `vllm serve` is made from vLLM's configuration classes, and those import most
of vLLM. None of that computes anything, but classes are derived from torch's, functions are
decorated by it and types are named with it. Here any name of torch is such a class. That the parser
is the real one all the same is shown by its help, which is compared with that of a whole vLLM.
"""

import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_TORCH = "torch"
_VERSION = "2.13.0"


class _Anything(type):
    """The type of a class in the place of any class, function, decorator or number of torch."""

    def __getattr__(cls, name: str) -> "_Anything":
        if name.startswith("__"):
            raise AttributeError(name)
        return _anything(name)

    def __call__(cls, *given: Any, **options: Any) -> Any:
        if not cls.__dict__.get("is_torch"):  # a class of vLLM that is derived from it
            return super().__call__(*given, **options)
        decorates = len(given) == 1 and callable(given[0]) and not isinstance(given[0], _Anything)
        return given[0] if decorates and not options else cls

    def __getitem__(cls, _: object) -> "_Anything":
        return cls

    def __iter__(cls) -> Iterator[object]:
        return iter(())

    def __bool__(cls) -> bool:
        return False

    def __radd__(cls, text: str) -> str:
        return text

    def __get_pydantic_core_schema__(cls, *_: object) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()


def _anything(name: str) -> _Anything:
    return _Anything(name, (), {"is_torch": True, "__module__": _TORCH})


def infer_schema(function: Callable[..., Any], **_: object) -> str:
    """torch's signature of a custom operator, as far as vLLM looks at it: the outputs."""
    returned = inspect.signature(function).return_annotation
    outputs = 0 if returned in (None, inspect.Signature.empty) else len(typing.get_args(returned))
    return f"() -> ({', '.join(['Tensor'] * outputs)})" if outputs else "() -> Tensor"


class _Module(ModuleType):
    """torch or a module of it, in which every name is found."""

    def __getattr__(self, name: str) -> object:
        if name == "__version__":
            return _VERSION
        if name == "infer_schema":
            return infer_schema
        if name.startswith("__"):
            raise AttributeError(name)
        attribute = _anything(name)
        setattr(self, name, attribute)
        return attribute


class _Finder(MetaPathFinder, Loader):
    """Finds every module of torch."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != _TORCH:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def install() -> None:
    """From here on `import torch` finds the stand-in."""
    sys.meta_path.insert(0, _Finder())
