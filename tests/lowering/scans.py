"""Where a jaxpr's loop is."""

from typing import Any


def the_scan(jaxpr: Any) -> Any:
    """Returns the one ``lax.scan`` of a jaxpr, which may be within a function with derivative rules of its own."""
    (found,) = (e for e in jaxpr.eqns if e.primitive.name in ("scan", "custom_jvp_call"))
    return found if found.primitive.name == "scan" else the_scan(found.params["call_jaxpr"].jaxpr)
