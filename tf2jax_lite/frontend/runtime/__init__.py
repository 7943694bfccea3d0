"""TensorFlow run on our behalf.

`host_function` runs the part of a model that only TensorFlow can, `xla_compiler` compiles single nodes with
TensorFlow's XLA bridge, `string_evaluator` evaluates string ops at conversion, `write_back` returns values to
variables.
"""
