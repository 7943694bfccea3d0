"""Generate the module's functions besides those of the model.

They read params, update them, and list the names of layers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from . import literals
from .formatter import loop, statement
from .functions import tuple_of
from .structure.sequences import by_index

_NUMBERED = '''def _numbered(name, index):
    """Return Keras's name for a layer by its number: dense, dense_1, dense_2."""
    return f"{name}_{index}" if index else name'''

_STACKED = '''def _stacked(layers):
    """Stack the params of equal layers, unless stack_layers has done so."""
    first = next(layers)
    try:
        others = list(layers)
    except KeyError:  # the first layer's params are all layers'
        return first
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), first, *others)'''

_STACK = '''def stack_layers(params):
    """Stack the params of equal layers, which otherwise each call does."""
    params = jax.tree.map(lambda array: array, params)  # new dicts
{loop}
        scopes = [
            functools.reduce(lambda inner, name: inner.get(name, {{}}), path[:-1], params)
            for path in paths
        ]
        layers = [
            scope.pop(path[-1])
            for scope, path in zip(scopes, paths, strict=True)
            if path[-1] in scope
        ]
        if layers:  # else another file has them
            stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *layers)
            scopes[0][paths[0][-1]] = stacked
    return params'''

_UPDATED = '''def _updated(params, changes):
    """Return params with other values for some of them."""
    return {
        **params,
        **{
            name: _updated(params[name], value) if isinstance(value, dict) else value
            for name, value in changes.items()
        },
    }'''

_MERGED = '''def _merged(params, state):
    """Return new dicts with the arrays of both."""
    merged = jax.tree.map(lambda array: array, state)
    for name, value in params.items():
        inner = state.get(name, {})
        merged[name] = _merged(value, inner) if isinstance(value, dict) else value
    return merged'''

_SELECTED = '''def _selected(params, like):
    """Return the arrays of params that other nested dicts have."""
    return {
        name: _selected(params[name], value) if isinstance(value, dict) else params[name]
        for name, value in like.items()
    }'''

_WITHOUT_GRADIENT = '''@jax.custom_jvp
def _without_gradient(x):
    """Return x with derivative zero, for one order of differentiation."""
    return x


@_without_gradient.defjvp
def _without_gradient_jvp(primals, tangents):
    return primals[0], jnp.zeros_like(tangents[0])'''

SUPPORT = {
    "_merged": _MERGED,
    "_selected": _SELECTED,
    "_updated": _UPDATED,
    "_stacked": _STACKED,
    "_numbered": _NUMBERED,
    "_without_gradient": _WITHOUT_GRADIENT,
}
"""Functions that a module defines if it uses them, by name."""

_LOAD = '''def load_params(*paths):
    """Read params.safetensors, or several such files, as a nested dict by scope."""
    from safetensors.numpy import load_file

    flat = {name: value for path in paths for name, value in load_file(path).items()}
    params = {}
    for name, value in flat.items():
        *scopes, leaf = name.split("/")
        inner = params
        for scope in scopes:
            inner = inner.setdefault(scope, {})
        inner[leaf] = value
    return params'''

_PLAIN = """        *scopes, leaf = name.split("/")
        inner = params
        for scope in scopes:
            inner = inner.setdefault(scope, {})
        inner[leaf] = value
"""

_NESTED_NAMES = """        *scopes, leaf = name.split("/")
        inner, key = params, ""
        for count, scope in enumerate(scopes, 1):
            if "/".join(scopes[:count]) in leaves:  # a param, which holds no others
                key += f"{scope}/"
            else:
                inner, key = inner.setdefault(key + scope, {}), ""
        inner[key + leaf] = value
"""

_COMPLEX = """        if name in {names}:  # the last axis has real and imaginary parts
            value = value.view(f"c{{2 * value.itemsize}}")[..., 0]
"""


def stack_layers(groups: Sequence[Sequence[tuple[str, ...]]]) -> str:
    """Return the function that stacks params; "" if there are none to stack.

    Args:
      groups: for each group of equal layers the paths of their params; of groups within others, the inner ones first.
    """
    if not groups:
        return ""
    return _STACK.format(loop="\n".join(loop(f"for paths in {tuple_of([_paths(g) for g in groups])}:", 4)))


def _paths(group: Sequence[tuple[str, ...]]) -> str:
    """Return the source of a list of paths: by index if there is an expression for it."""
    parts: list[str] = []
    for words in zip(*group, strict=True):
        part = literals.value(words[0]) if len(set(words)) == 1 else by_index(words, quoted=True)
        if part is None:
            return "[" + ", ".join(tuple_of([literals.value(word) for word in path]) for path in group) + "]"
        parts.append(part)
    return f"[{tuple_of(parts)} for i in range({len(group)})]"


def load_params(names: Collection[str], of_complex: Collection[str], *, stacks: bool = False) -> str:
    """Return the function that reads params.

    Args:
      names: the params' names.
      of_complex: names of those that are complex, which safetensors does not support.
      stacks: whether it calls ``stack_layers``.
    """
    given = set(names)
    text = _LOAD.replace("return params", "return stack_layers(params)") if stacks else _LOAD
    prefixes = {name[:i] for name in given for i, c in enumerate(name) if c == "/"}
    if prefixes & given:
        leaves = "\n".join(statement(f"leaves = {_set_text(prefixes & given)}", 4))
        text = text.replace(_PLAIN, _NESTED_NAMES).replace("    params = {}\n", f"    params = {{}}\n{leaves}\n")
    if of_complex:
        line = "    for name, value in flat.items():\n"
        text = text.replace(line, line + _COMPLEX.format(names=_set_text(of_complex)))
    return text


def _set_text(names: Collection[str]) -> str:
    return "{" + ", ".join(literals.value(name) for name in sorted(names)) + "}"
