"""CPU lowering rules that replace slow XLA:CPU code, chosen by shape.

Other platforms keep the primitive.

`optimize` is the entry for any JAX function. Libraries call primitives that have rules through `rules.call`, or through
the function of a primitive's module. In this order the modules explain themselves:

- `selection`: a rule as data, and which rules are in force;
- `rules`: primitives with a CPU lowering rule, their derivatives and batching;
- `conv`: the table of convolution rules; `pooling` with `large_windows`, `reductions`, `cumulative`, `inverse_trig`,
  `top_k`, `swaps`, `dot_order`, `constant_dot`: the rules of other primitives;
- `materialize`, `outline`: values and functions that XLA computes once;
- `cost_model`: the thresholds of all rules, and of the optimizations of `lowering`, with units;
- `catalog`: all tables, and the names of rules that the option ``xla_cpu_rules`` takes;
- `transform`: `optimize`;
- `slow_loops`: convolutions that stay slow inside loops.

Must not import `ops`, or anything above; it has no notion of TensorFlow.
"""

from .transform import optimize

__all__ = ["optimize"]
