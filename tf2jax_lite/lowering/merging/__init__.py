"""Values of several branches or iterations that become one.

`branch_merge.merge_branches` is the entry: it traces branches, finds a rule for each result and runs ``lax.switch``.
It also has
the representation of carried values (`as_traced`, `as_carried`), which loops use, too. `branch_variants` has results of
different sizes and ranks.

Imports neither `planning` nor `interpreter`.
"""
