"""Functions that generated modules have besides the model's: reading params, updating them, names of layers."""

from __future__ import annotations

from collections.abc import Collection

from . import literals

__all__ = ["NUMBERED", "STACKED", "UPDATED", "load_params"]

NUMBERED = '''def _numbered(name, index):
    """Return Keras's name for a layer by its number: dense, dense_1, dense_2."""
    return f"{name}_{index}" if index else name'''

STACKED = '''def _stacked(layers):
    """Stack the params of equal layers along a new first axis."""
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), *layers)'''

UPDATED = '''def _updated(params, changes):
    """Return params with other values for some of them."""
    return {
        **params,
        **{
            name: _updated(params[name], value) if isinstance(value, dict) else value
            for name, value in changes.items()
        },
    }'''

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
            if "/".join(scopes[:count]) in flat:  # a param, which holds no others
                key += f"{scope}/"
            else:
                inner, key = inner.setdefault(key + scope, {}), ""
        inner[key + leaf] = value
"""

_COMPLEX = """        if name in {names}:  # the last axis has real and imaginary parts
            value = value.view(f"c{{2 * value.itemsize}}")[..., 0]
"""


def load_params(names: Collection[str], of_complex: Collection[str]) -> str:
    """Return the function that reads params.

    Args:
      names: the params' names.
      of_complex: names of those that are complex, which safetensors does not support.
    """
    given = set(names)
    text = _LOAD
    prefixes = {name[:i] for name in given for i, c in enumerate(name) if c == "/"}
    if prefixes & given:
        text = text.replace(_PLAIN, _NESTED_NAMES)
    if of_complex:
        listed = "{" + ", ".join(literals.value(name) for name in sorted(of_complex)) + "}"
        line = "    for name, value in flat.items():\n"
        text = text.replace(line, line + _COMPLEX.format(names=listed))
    return text
