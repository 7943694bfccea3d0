"""Samplers with TensorFlow's Philox bits, and stateful ops drawn from JAX keys.

Read `philox` first, then the samplers from its words, then the ops:

- `philox`: the generator, seeding and the arithmetic of its counter.
- `_uniform`, `_normal`, `_rejection`: uniform, normal, and rejection-sampled numbers; `_fill`: tensors of them.
- `stateless`, `generator`, `distributions`: ops with explicit seeds, ops of tf.random.Generator, other distributions.
- `stateful`, `categorical`, `candidate_sampling`: TF1's random ops, multinomial and candidate samplers.
- `index_shuffle`, `sobol`, `stochastic_rounding`: permutations by a cipher, quasirandom points, random rounding.

Imports `ops.arrays` and `ops.common` only.
"""

from . import (  # noqa: F401
    categorical,
    distributions,
    generator,
    index_shuffle,
    legacy,
    sobol,
    stateful,
    stateless,
    stochastic_rounding,
)
