"""Commands whose parameters are the fields of option classes."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tf2jax_lite.support.options import Description, Options, described

from .config_file import Config
from .shared import app


def command(options: type[Options], *, without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that makes a command of ``(options, own parameters)``.

    The command has the function's own parameters, ``--config``, and an option for each field.

    Args:
      options: the class of the first argument.
      without: fields that the function's own parameters stand for; it gets their defaults.
    """
    fields = {name: entry for name, entry in described(options).items() if name not in without and entry[2].flag != ""}

    def registered(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        @functools.wraps(function)
        def run(config: Any = None, **values: Any) -> None:
            chosen = {name: _value(values.pop(name), *fields[name][:2]) for name in fields}
            function(options(**chosen), **values)

        parameters = [*own, _parameter("config", Config, None)]
        parameters += [_parameter(name, *_typed(name, *entry)) for name, entry in fields.items()]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del run.__wrapped__  # type: ignore[attr-defined]  # typer reads annotations of the function that it wraps
        app.command(name=function.__name__.replace("_", "-"))(run)
        return function

    return registered


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _typed(name: str, field: dataclasses.Field, kind: Any, facts: Description) -> tuple[Any, Any]:
    """Return the annotation of a command's parameter, and its default."""
    kind = facts.shell_type or kind
    default = field.default if facts.shell_default is ... else facts.shell_default
    if typing.get_origin(kind) in (collections.abc.Sequence, tuple):
        kind, default = list[typing.get_args(kind)[0]] | None, None
    whole = int in (kind, *typing.get_args(kind))
    described_option = typer.Option(
        facts.flag or f"--{name.replace('_', '-')}",
        help=facts.help,
        min=facts.least if whole and facts.least is not None else None,
        metavar=facts.metavar,
        rich_help_panel=facts.panel,
    )
    return Annotated[kind, described_option], default


def _value(value: Any, field: dataclasses.Field, kind: Any) -> Any:
    """Return an option's value: the default for a list that is not given."""
    several = typing.get_origin(kind) in (collections.abc.Sequence, tuple)
    return field.default if several and value is None else value
