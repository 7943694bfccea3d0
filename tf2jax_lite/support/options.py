"""Options of functions and commands, each declared once as a field of a dataclass.

A field made by `option` has a type, a default, a range and a help text. From these follow the checks of values, the
documentation of Python functions (`takes`), the identity of a training's checkpoints (`Options.identity`), and the
parameters of commands and their files (`cli.options`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import numbers
import re
import textwrap
import typing
from collections.abc import Callable
from typing import Any, Literal, Self, TypeVar

from tf2jax_lite.support.errors import InputError

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Part = TypeVar("_Part", bound="Options")


@dataclasses.dataclass(frozen=True)
class Description:
    """Facts of an option beside its type and default.

    Attributes:
      help: a sentence for users, in the shell and in Python.
      least: the smallest value.
      above: values are greater than this.
      below: values are less than this.
      identity: "always" or "given" (only a value other than the default): the option changes a training's result, so
        that its checkpoint and its artifact record it. "recorded": only the artifact does, if it is given.
      flag: the option of the shell; ``--name`` by default. "" for an option of Python alone.
      shell_type: the type of the shell's values; the field's by default.
      shell_default: the default in the shell, if it differs; ``...`` if not.
      metavar: the name of the value in the shell's help.
      panel: the heading in the shell's help.
    """

    help: str
    least: float | None = None
    above: float | None = None
    below: float | None = None
    identity: Literal["always", "given", "recorded", ""] = ""
    flag: str | None = None
    shell_type: Any = None
    shell_default: Any = ...
    metavar: str | None = None
    panel: str | None = None


def option(default: Any = dataclasses.MISSING, help: str = "", **facts: Any) -> Any:
    """Return a field of a class of options.

    Args:
      default: the default; without it, the option is required.
      help: see `Description`.
      **facts: of `Description`.
    """
    return dataclasses.field(default=default, metadata={"option": Description(help, **facts)})


@functools.cache
def described(options: type[Options]) -> dict[str, tuple[dataclasses.Field, Any, Description]]:
    """Return the options of a class by name: fields, types, descriptions."""
    hints = typing.get_type_hints(options)
    return {field.name: (field, hints[field.name], field.metadata["option"]) for field in dataclasses.fields(options)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Base of classes of options.

    Raises:
      InputError: a value is out of its range.
    """

    def __post_init__(self) -> None:
        """Make sequences tuples, and check values that have a range."""
        for name, (_, kind, facts) in described(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
            kinds = (kind, *typing.get_args(kind))
            ranged = (facts.least, facts.above, facts.below) != (None, None, None)
            if ranged and not (value is None and type(None) in kinds):
                _check_range(name, value, facts, whole=int in kinds)

    def identity(self) -> dict[str, Any]:
        """Return the options that determine a training's result."""
        return self._recorded("always", "given")

    def record(self) -> dict[str, Any]:
        """Return the options that a trained artifact records."""
        return self._recorded("always", "given", "recorded")

    def _recorded(self, *kinds: str) -> dict[str, Any]:
        found = {}
        for name, (field, _, facts) in described(type(self)).items():
            value = getattr(self, name)
            if facts.identity in kinds and (facts.identity == "always" or value not in (None, field.default)):
                found[name] = list(value) if isinstance(value, tuple) else value
        return found

    def part(self, kind: type[_Part]) -> _Part:
        """Return the options of one of the classes that this one inherits from."""
        return kind(**{field.name: getattr(self, field.name) for field in dataclasses.fields(kind)})

    def replace(self, **changes: Any) -> Self:
        """Return the options with other values."""
        return dataclasses.replace(self, **changes)


def _check_range(name: str, value: Any, facts: Description, whole: bool) -> None:
    number: Any = numbers.Integral if whole else numbers.Real
    if (
        not isinstance(value, number)
        or isinstance(value, bool)
        or not math.isfinite(value)
        or (facts.least is not None and value < facts.least)
        or (facts.above is not None and value <= facts.above)
        or (facts.below is not None and value >= facts.below)
    ):
        words = (("of at least", facts.least), ("above", facts.above), ("below", facts.below))
        limits = " and ".join(f"{word} {bound:g}" for word, bound in words if bound is not None)
        raise InputError(f"{name} is {'an integer' if whole else 'a finite number'} {limits}, not {value!r}.")


def takes(options: type[Options]) -> Callable[[_Function], _Function]:
    """Return a decorator of functions whose other keywords are those of a class.

    The function's signature and the arguments in its docstring have each of them.
    """

    def documented(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind != p.VAR_KEYWORD]
        names = {parameter.name for parameter in own}
        found = {name: entry for name, entry in described(options).items() if name not in names}
        keywords = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
                annotation=field.type,
            )
            for name, (field, _, _) in found.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        lines = [line for name, (field, _, facts) in found.items() for line in _described_lines(name, field, facts)]
        text = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = re.sub(r"^  \*\*\w+:.*\n(    .*\n)*", lambda _: "\n".join(lines) + "\n", text, flags=re.M)
        return function

    return documented


def _described_lines(name: str, field: dataclasses.Field, facts: Description) -> list[str]:
    default = "" if field.default in (dataclasses.MISSING, None, (), False) else f" Default: {field.default!r}."
    return textwrap.wrap(f"{name}: {facts.help}{default}", 100, initial_indent="  ", subsequent_indent="    ")
