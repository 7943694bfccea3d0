"""Write docs/developer/stablehlo-primitives.md: primitives of round trips.

``python -m tools.pages.stablehlo_primitives`` writes the page from the list in ``jax.extend.core.primitives`` and the
jaxprs of all cases.
"""

from pathlib import Path

import jax
import jax.extend.core.primitives as listed
import jax.numpy as jnp

from tests.stablehlo.harness import _jaxprs
from tests.stablehlo.primitives import CASES

PAGE = Path(__file__).parent.parent.parent / "docs" / "developer" / "stablehlo-primitives.md"

COLLECTIVE = "a collective: not supported among several devices, tested among one"
INTERNAL = "never reaches a module: jax replaces it while tracing or lowering"
# Primitives that no case has, and why.
NOT_SWEPT = {
    **dict.fromkeys(
        ("all_gather", "all_to_all", "pmax", "pmin", "ppermute", "psum", "ragged_all_to_all", "axis_index"), COLLECTIVE
    ),
    **dict.fromkeys(("call", "closed_call", "custom_lin", "get", "swap", "empty2", "eval_jaxpr"), INTERNAL),
    **dict.fromkeys(("after_all", "create_token"), "tokens, which no value depends on"),
    **dict.fromkeys(("eq_to", "le_to", "lt_to"), "total orders inside comparators: the sorts have them"),
    **dict.fromkeys(("one_minus_square", "polynomial"), "of JAX since 0.12, lowered to products and sums"),
    "rng_uniform": "XLA's own generator: values are any; read as lax.rng_uniform",
    "name": "jax.ad_checkpoint.checkpoint_name: an identity that nothing lowers to",
    "select_and_scatter": "general regions have no public function",
}


def of_jaxpr(jaxpr):
    """Yield the names of a jaxpr's primitives, inner jaxprs included."""
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for inner in _jaxprs(eqn.params):
            yield from of_jaxpr(inner)


def exercised():
    """Return for each primitive the cases that have it."""
    found = {}
    for case in CASES:
        try:
            jaxpr = jax.make_jaxpr(case.fn)(*map(jnp.asarray, case.args)).jaxpr
        except (NotImplementedError, AttributeError):  # another release of jax
            continue
        for name in set(of_jaxpr(jaxpr)):
            found.setdefault(name, []).append(case.name)
    return found


def public():
    """Return the names of the primitives that jax lists."""
    return {getattr(listed, name).name for name in dir(listed) if name.endswith("_p")}


def page():
    """Return the page."""
    found = exercised()
    lines = [
        "# Primitives that come back from StableHLO",
        "",
        "Each of these is in at least one case of the sweep, which compares values, `grad`, `grad` of `grad`, `jvp`,"
        " `vmap` and `jit` of the round trip with the original's, where the primitive has them.",
        "",
        f"{len(CASES)} cases; {len(public() & set(found))} of the {len(public())} primitives in"
        f" `jax.extend.core.primitives`, and {len(set(found) - public())} others:",
        "",
        ", ".join(f"`{name}`" for name in sorted(found)) + ".",
        "",
        "## Not in the sweep",
        "",
        "| primitive | why |",
        "|---|---|",
    ]
    for name in sorted(public() - set(found)):
        lines.append(f"| `{name}` | {NOT_SWEPT.get(name, 'no case yet')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
