"""Values of several branches or iterations that become one.

`branch_merge` first; `size_variants` and `rank_variants` handle results of different sizes and ranks.
"""
