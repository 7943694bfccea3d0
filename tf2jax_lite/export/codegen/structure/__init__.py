"""Structure generated source into functions, with params and named values.

Entry: `scopes.structure` turns printed equations into calls and loops; `render` writes functions.

Read in this order:
  items: printed equations, calls and loops; equal functions have equal keys.
  scopes, outline: functions for name scopes, and for repeated parts of them; loops.
  plans, sequences: parameters of functions, and first lines of loops.
  naming, render: names of values, and the lines of a function.

Must not import `module` or `functions`, which use it.
"""
