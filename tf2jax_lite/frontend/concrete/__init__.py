"""ConcreteFunctions to IR graphs with an interface.

`trace` makes a ConcreteFunction of a callable, `concrete_function.load_concrete` imports it. `composite_specs` takes
TypeSpecs apart, `table_captures` and `variable_values` read captured tables and variables.
"""
