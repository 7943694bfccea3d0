"""Rewrite advice in error texts: options of the running command for Python calls.

Errors advise in Python, whatever raises them: ``override_config('name', value)``, an argument as ``name=`` or
``name=value``. Three tables say what a shell has in their place. Advice for which it has nothing is left out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

# Clauses of Python without an option that means the same.
CLAUSES = {
    " (in Python: inputs=)": "",
    ", or switch the check off with override_config('strict_shape_check', False) around conversion or call": "",
    ", or switch the check off with override_config('strict_shape_check', False) at conversion": "",
    ", or switch the check off with override_config('strict_dtype_check', False)": "",
    " The check is off with override_config('strict_shape_check', False) around conversion or call.": "",
    "Convert with None for dimensions that vary": "Convert with names for dimensions that vary (shapes=)",
    "Add one with @tf2jax_lite.register_op(name), or, if": "If",
    ", or add the op with @tf2jax_lite.register_op": "",
    " Register one that takes it (tf2jax_lite.override_op).": "",
    "convert_saved_model(..., split_host=True)": "split_host=True",
    "Under jax.jit, pass what it depends on as a static argument (jax.jit(..., static_argnums=...))": (
        "Make it a constant of the model"
    ),
    "load it with custom_objects= and convert the loaded model": "name their module (import=)",
    "(import a module with layers first)": "(of a module with layers also import=)",
    "Use build_unweighted_fed_avg, or client_weighting='uniform'": "Use algorithm='unweighted_fed_avg'",
    "Give that pass an aggregator with the same guarantees (full_gradient_aggregator of Mime), or take": "Take",
    " keep them at the clients (with_local_weights),": "",
    ", or train by create_model_from_tf": "",
    "('dynamic_shape_bound', n)": "('dynamic_shape_bound', N)",
    'jax.config.update("jax_enable_x64", True)': "JAX_ENABLE_X64=1",
}
# Arguments and their options, where the names differ in more than dashes; by command where these differ.
ARGUMENTS = {
    "overwrite": "--force",
    "head": "--replace",
    "dimensions": "--dimension",
    "tags": "--tag",
    "ends": "--input and --output",
    "verify backend": "--source",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in (
            *("algorithm", "backend", "bisect", "clip_norm", "domain_key", "dtype", "first_order"),
            *("framework", "freeze", "from_logits", "ignore_label", "import", "inputs", "label", "mlir", "model"),
            *("output", "shapes", "split_host", "stablehlo", "train_fully", "train_signature", "weights"),
        )
    },
}
_CONFIG = re.compile(r"""(?:tf2jax_lite\.)?override_config\((['"])(?P<name>\w+)\1, (['"]?)(?P<value>[^()]*?)\3\)""")
_ARGUMENT = re.compile(
    rf"\b(?P<name>{'|'.join(sorted({n.split()[-1] for n in ARGUMENTS}))})=(?P<value>True|False|'\w+')?"
)
_SENTENCE = re.compile(r"(?<=\.)(?= )")


def for_shell(text: str, command: str = "convert") -> str:
    """Return an error's text with options of a command where it names Python calls.

    Args:
      text: in one or more sentences, of which the first states the problem.
      command: the name of the running command.
    """
    for python, shell in CLAUSES.items():
        text = text.replace(python, shell)
    return "".join(_sentences(text, command))


def _sentences(text: str, command: str) -> Iterator[str]:
    first, *others = _SENTENCE.split(text)
    for sentence in (first, *others):
        try:
            yield _ARGUMENT.sub(
                lambda found: _argument(found, command),
                _CONFIG.sub(lambda found: _config(found, command), sentence),
            )
        except LookupError:  # no command has the option
            if sentence is first:
                yield sentence


def _config(found: re.Match[str], command: str) -> str:
    name, value = found["name"], found["value"]
    if name == "trusted" and "--trust" in options(command):
        return " ".join(f"--trust {item}" for item in value.split(","))
    if name == "trusted":
        return f"{found[0]} in Python"  # of an artifact
    return f"{_where(command, '--set')} {name}={value}"


def _argument(found: re.Match[str], command: str) -> str:
    name, value = found["name"], found["value"] or ""
    option = ARGUMENTS.get(f"{command} {name}", ARGUMENTS[name])
    named = _where(command, option)
    if value == "False":
        return named.replace("--", "--no-", 1)
    return f"{named} {value[1:-1]}" if value.startswith("'") and option != "--source" else named


def _where(command: str, option: str) -> str:
    """Return an option, with the command that has it if that is another.

    Raises:
      LookupError: neither the command nor ``convert`` has it.
    """
    first = option.split()[0]
    if first in options(command):
        return option
    if first in options("convert"):
        return f"tf2jax-lite convert {option}"
    raise LookupError(option)


@functools.cache
def options(command: str) -> frozenset[str]:
    """Return the options of a command; none of an unknown one."""
    import typer.main

    from .app import app

    found = typer.main.get_command(app).commands.get(command)  # type: ignore[attr-defined]
    return frozenset(name for param in found.params for name in param.opts) if found else frozenset()
