"""GraphDef and FunctionDef to IR functions, each kind of proto read in one module.

`functions` is the entry; `nodes` reads one NodeDef, `op_defs` and `attributes` what it refers to, `dtypes` its
dtypes; `size_limits` bounds declared sizes before anything is read.
"""
