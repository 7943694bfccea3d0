"""Values of several branches or iterations that become one.

`branch_merge.merge_branches` is the entry: it traces branches, finds a rule for each result and runs ``lax.switch``.
Read it first, then

- `carried_values`: the representation of carried values (`as_traced`, `as_carried`), which loops use, too;
- `size_variants`: results of different sizes;
- `rank_variants`: results of different ranks.

Imports neither `planning` nor `interpreter`.
"""
