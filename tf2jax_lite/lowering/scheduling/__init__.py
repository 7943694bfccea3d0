"""Hints to XLA's CPU backend, without effect on values.

`materialize` decides which values are computed once, by the post-dominators of `post_dominators`;
`materialize_slices` does so before a value is split.
"""
