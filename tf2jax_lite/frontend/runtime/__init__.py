"""TensorFlow run on behalf of a converted model, at conversion or at call time.

Entries, one per module, in reading order:

- `host_function.HostFunction`: the prefix of a split model.
- `xla_compiler.BridgeCompiler`: single nodes compiled by TensorFlow's XLA bridge.
- `string_evaluator.StringEvaluator`: string ops with static inputs, evaluated at conversion.
- `gpu_memory.hide_gpu_from_tensorflow`: GPUs for JAX alone.
- `write_back`: values written to variables and checkpoints of the TensorFlow model.
- `stablehlo_model`: SavedModels whose signatures call StableHLO modules.

Must not import `passes` or `lowering`; `ir.providers` has the interfaces that the lowering knows.
"""
