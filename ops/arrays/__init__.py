"""Ops that query, move and rearrange array data.

`concat_split` joins and splits, `shape` queries and reshapes, `strided_slice`, `gather` and `scatter` index, `pad`
and `space_to_batch` rearrange, `sort` orders. `_radix_select` and `_dynamic_split` are helpers without ops. Read
`concat_split` first. Imports `ops.common` and `ops.registry` of the ops, no other family.
"""

from . import concat_split, gather, legacy, pad, scatter, shape, sort, space_to_batch, strided_slice, tpu_top_k  # noqa: F401
