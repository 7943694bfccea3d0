"""Samplers that give the same bits as TensorFlow's Philox kernels, and stateful ops drawn from JAX keys.

`philox` has the generator and its counters, `_fill` and `_samplers` turn its words into distributions, `stateless`,
`generator`, `distributions` and `stateful` are the ops. Read `philox` first. Imports `ops.arrays` and `ops.common`
only.
"""

from . import (  # noqa: F401
    _fill,
    _samplers,
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
