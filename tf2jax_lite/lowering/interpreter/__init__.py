"""Run a plan under JAX tracing.

`trace.Trace` is the entry: the evaluator of plans, with the state of one call. Read it first, then

- `frame`: the position in the call tree, and the context that ops of the lowering get;
- `operands`: inputs in the form that an op takes;
- `constant_folding`: nodes whose inputs are static, and limits of their results; evaluation of plans in NumPy as far as
  possible;
- `diagnostics`: errors that name a node;
- `assigned_variables`: gradients with respect to variables that are assigned;
- `int64_narrowing`: warnings about lost high bits;
- `compiled_calls`: calls with concrete arguments, compiled.

Does not import `op_lowerings` or `loops`, whose ops call it.
"""
