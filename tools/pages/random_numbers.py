"""docs/random.md, written by ``python -m tools.pages.random_numbers``."""

from __future__ import annotations

from pathlib import Path

from tests.ops.random.claims import CLAIMS, ULP

PAGE = Path(__file__).parents[2] / "docs" / "random.md"

_HEAD = """# Random numbers

```python
import jax
import numpy as np
import tensorflow as tf
import tf2jax_lite as tf2jax


@tf.function
def noisy(x):
    return x + tf.random.normal([3])  # a hidden state: draws from rng=


jax_fn, params = tf2jax.convert(noisy, tf.TensorSpec([3]))
results, params = jax_fn(params, np.zeros(3, np.float32), rng=jax.random.key(0))  # a new key at each call

stateless = tf.function(lambda seed: tf.random.stateless_uniform([3], seed))
jax_fn = tf2jax.convert_functional(stateless, tf.TensorSpec([2], tf.int32))
np.testing.assert_array_equal(jax_fn(np.int32([1, 2])), stateless(tf.constant([1, 2])))  # TensorFlow's own numbers
```

- A function that draws from `rng=` gives equal numbers for equal keys. A node's key is `fold_in(key of its frame,
  crc32(node name))`; a call folds in the calling node, a loop its counter. `rng` is a typed key or a raw uint32 one. Op
  seeds and graph seeds are not used.
- Keras 3's `SeedGenerator` is a variable in `params`, so dropout layers need no key, and draw TensorFlow's masks, call
  by call.
- `tf.random.Generator`'s state is a variable in `params`: int64 with 64-bit mode, else uint32 with one more axis of two
  words, low word first. Both forms work in either mode; a call returns the form that it was given.
- ThreeFry (algorithm 2) is not supported, as in TensorFlow's CPU kernels.

## Which numbers

- **exact**: bit for bit TensorFlow's numbers.
- **ulp**: the same numbers, rounded differently, since TensorFlow's logarithm, sine and cosine are not XLA's. The
  largest difference is in units of the dtype's precision at max(1, |number|).
- **distribution**: other numbers of the same distribution (Kolmogorov and Smirnov's test).

Exact and ulp hold with `jax_enable_x64`. Without it, 64-bit results have 32 bits as everywhere in JAX: full integers
are TensorFlow's low words, integers from a range of up to 2**32 are TensorFlow's, float64 is drawn as TensorFlow draws
float32. Keys, counters and generator states keep their 64 bits in either mode.

Artifacts draw dropout by `jax.random` of the key `rng`, with the same distribution; `convert --random tensorflow` and
`export_functions(random="tensorflow")` keep TensorFlow's numbers.

| numbers | ops | note |
| --- | --- | --- |
"""


def page() -> str:
    """Return docs/random.md; ops with the same claim share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, claim in CLAIMS.items():
        kind = f"{claim.kind}, at most {claim.ulps:g}" if claim.kind == ULP else claim.kind
        rows.setdefault((kind, claim.note), []).append(name)
    return _HEAD + "".join(f"| {kind} | {', '.join(names)} | {note} |\n" for (kind, note), names in rows.items())


if __name__ == "__main__":
    PAGE.write_text(page())
