"""Values of several branches or iterations that become one.

`branch_merge.merge_branches` is the entry: it traces branches, finds a rule for each result and runs ``lax.switch``.
`carried_values` has the representation of carried values (`as_traced`, `as_carried`), which loops use, too.
`size_variants` handles results of different sizes, `rank_variants` of different ranks.

Imports neither `planning` nor `interpreter`.
"""
