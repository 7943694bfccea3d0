"""docs/random.md, written by ``python -m tools.pages.random_numbers``."""

from __future__ import annotations

from pathlib import Path

from tests.ops.random.claims import CLAIMS, ULP

PAGE = Path(__file__).parents[2] / "docs" / "random.md"

_HEAD = """# Random numbers

Written by `python -m tools.pages.random_numbers`; `tests/ops/random/test_claims.py` checks each line against TensorFlow
on CPU, for sizes that are no multiple of four, every dtype, and counters of which 32, 64 and 96 bits run over.

- **exact**: bit for bit what TensorFlow draws.
- **ulp**: the same numbers, rounded otherwise, since TensorFlow's logarithm, sine and cosine are not XLA's. The largest
  difference is given in units of the dtype's precision at max(1, |number|).
- **distribution**: other numbers of the same distribution (Kolmogorov and Smirnov's test).

Exact and ulp hold with `jax_enable_x64` as they stand. Without it, 64-bit results are 32-bit as everywhere in JAX: full
integers are TensorFlow's low words, integers from a range of up to 2**32 are TensorFlow's, float64 is drawn as
TensorFlow draws float32. Keys, counters and generator states keep their 64 bits in either mode. Keras's `SeedGenerator`
is a variable in `params`, so dropout layers draw TensorFlow's masks, call by call. Artifacts draw them by `jax.random` of
the key `rng`, with the same distribution; `convert --random tensorflow` and `export_functions(random="tensorflow")` keep
TensorFlow's.

`tf.random.Generator`'s state is a variable in `params`: int64 with 64-bit mode, else uint32 with one more axis of two
words, low word first. Either form is taken in either mode; a call returns the form that it was given.

A node that draws from `rng=` has the key `fold_in(key of its frame, crc32(node name))`; a call folds in the calling
node, a loop its counter. Op seeds and graph seeds are not used. `rng` is a typed key or a raw uint32 one. ThreeFry
(algorithm 2) is refused, as TensorFlow's CPU kernels refuse it.

| op | numbers | note |
| --- | --- | --- |
"""


def page() -> str:
    """Return docs/random.md."""
    lines = []
    for name, claim in CLAIMS.items():
        kind = f"{claim.kind}, at most {claim.ulps:g}" if claim.kind == ULP else claim.kind
        lines.append(f"| {name} | {kind} | {claim.note} |\n")
    return _HEAD + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
