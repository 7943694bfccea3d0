"""CPU lowering rules that replace slow XLA:CPU code, chosen by shape.

Other platforms keep the primitive.

`optimize` is the entry for any JAX function; the interpreter applies the rules to each op by `transform.call`.
In this order the modules explain themselves:

- `rules`: a rule as data, which rules are in force, and the primitives that have some;
- `transform`: jaxprs whose primitives ask the rules, their derivatives and batching; `optimize`;
- `conv`: the table of convolution rules; `pooling` with `large_windows`, `argmax`, `cumulative`, `inverse_trig`,
  `top_k`, `constant_dot`: the rules of other primitives;
- `cost_model`: the thresholds of all rules, and of the optimizations of `lowering`, with units;
- `catalog`: all tables, and the names of rules that the option ``xla_cpu_rules`` takes.

Must not import `ops`, or anything above; it has no notion of TensorFlow.
"""

from .transform import optimize

__all__ = ["optimize"]
