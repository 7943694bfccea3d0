"""Generate the function that wraps params in `nnx.Variable`.

Modules share the variables.
"""

from __future__ import annotations

from collections.abc import Mapping

from tf2jax_lite.export.codegen import literals

NON_TRAINABLE = '''class NonTrainable(nnx.Variable):
    """A variable that TensorFlow does not train, or a constant."""'''

_FUNCTION = '''def to_variables(params):
    """Return nested params as nnx.Variables; models made of them share them."""
{kinds}
    def variable(path, value):
        if isinstance(value, nnx.Variable):
            return value
        abstract = isinstance(value, jax.ShapeDtypeStruct)
{name}{kind}        return {call}(value if abstract else jnp.asarray(value))

    return jax.tree.map_with_path(
        variable, params, is_leaf=lambda value: isinstance(value, nnx.Variable)
    )'''


def variables_function(kinds: Mapping[str, str]) -> str:
    """Return the source of the function that makes variables of params.

    Args:
      kinds: name of a param to the class that holds it: one of `flax.nnx`, or ``NonTrainable``.
    """
    if len(set(kinds.values())) < 2:
        only = _class(next(iter(kinds.values()), "Param"))
        return _FUNCTION.format(kinds="", name="", kind="", call=only)
    leaves: dict[str, set[str]] = {}
    for name, kind in kinds.items():
        leaves.setdefault(name.rpartition("/")[2], set()).add(kind)
    by_leaf = {leaf: next(iter(found)) for leaf, found in leaves.items() if len(found) == 1 and found != {"Param"}}
    others = {tuple(n.split("/")): kind for n, kind in kinds.items() if n.rpartition("/")[2] not in by_leaf}
    by_scope = {"/".join(path): kind for path, kind in _cover((), others).items()}
    text, lookups = "", []
    if by_leaf:
        text += _table("leaves", by_leaf)
        lookups.append('leaves.get(name.rpartition("/")[2])')
    if by_scope:
        text += _table("scopes", by_scope)
        found = 'f"{name}/".startswith(f"{scope}/")'
        lookups.append(f"next((kind for scope, kind in scopes.items() if {found}), None)")
    name = '        name = "/".join(entry.key for entry in path)\n'
    if len(lookups) == 1 and by_leaf:
        name, lookups = '        leaf = path[-1].key.rpartition("/")[2]\n', []
        kind = "leaves.get(leaf, nnx.Param)"
    else:
        kind = " or ".join([*lookups, "nnx.Param"])
    whole = f"        kind = {kind}"
    if len(whole) > 88:
        kind = "(\n            " + "\n            or ".join([*lookups, "nnx.Param"]) + "\n        )"
    return _FUNCTION.format(kinds=text, name=name, kind=f"        kind = {kind}\n", call="kind")


def _class(kind: str) -> str:
    return kind if kind == "NonTrainable" else f"nnx.{kind}"


def _table(name: str, kinds: Mapping[str, str]) -> str:
    items = [f"{literals.value(key)}: {_class(kind)}" for key, kind in sorted(kinds.items())]
    whole = f"    {name} = {{{', '.join(items)}}}\n"
    return whole if len(whole) <= 89 else f"    {name} = {{\n" + "".join(f"        {i},\n" for i in items) + "    }\n"


def _cover(prefix: tuple[str, ...], kinds: Mapping[tuple[str, ...], str]) -> dict[tuple[str, ...], str]:
    """Return the scopes whose params have one kind, other than `nnx.Param`."""
    found = set(kinds.values())
    if found <= {"Param"}:
        return {}
    if len(found) == 1 and prefix:
        return {prefix: found.pop()}
    length = len(prefix) + 1
    parts: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
    for path, kind in kinds.items():
        parts.setdefault(path[:length], {})[path] = kind
    return {scope: kind for head, inner in parts.items() for scope, kind in _cover(head, inner).items()}
