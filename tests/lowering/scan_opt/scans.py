"""Where a jaxpr's loops are, and what they carry."""

from collections.abc import Iterator
from typing import Any

from tf2jax_lite.jaxprs.compat import scan_counts


def the_scan(jaxpr: Any) -> Any:
    """Return a jaxpr's only ``lax.scan``, within derivative rules or not."""
    (found,) = (e for e in jaxpr.eqns if e.primitive.name in ("scan", "custom_jvp_call"))
    return found if found.primitive.name == "scan" else the_scan(found.params["call_jaxpr"].jaxpr)


def all_equations(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a jaxpr, and those of the jaxprs in them."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for one in value if isinstance(value, (tuple, list)) else [value]:
                inner = getattr(one, "jaxpr", one)
                if hasattr(inner, "eqns"):
                    yield from all_equations(inner)


def carried_shapes(jaxpr: Any) -> list[tuple[int, ...]]:
    """Return the shapes of all that ``lax.scan``s carry, in the jaxprs within as well."""
    found = []
    for eqn in all_equations(jaxpr):
        if eqn.primitive.name == "scan":
            first, count = scan_counts(eqn.params)
            found += [v.aval.shape for v in eqn.invars[first : first + count]]
    return found
