"""Samplers with TensorFlow's Philox bits, and stateful ops drawn from JAX keys.

Read `philox` first (the generator, seeding, the arithmetic of its counter), then `_samples` (numbers from its words),
then the ops: `stateless` with explicit seeds, `generator` of tf.random.Generator, `stateful` of TF1.

Imports `ops.arrays` and `ops.common` only.
"""

from . import generator, sobol, stateful, stateless  # noqa: F401
