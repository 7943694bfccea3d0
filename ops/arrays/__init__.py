"""Ops that create, query, move and rearrange array data.

The op functions are the entry: `registry.lookup` finds them by op name, other families import a few by function.
Read the modules in this order:

- `identity`: constants, placeholders, pass-through ops.
- `shape`: shape queries, reshapes, broadcasting. `fill`: arrays of one value, ranges.
- `concat_split` (with `_dynamic_split`), `permute`: joining, splitting, transposing, reversing, rolling, tiling.
- `slice`, `strided_slice` (with `_slicing` and `_strided_spec`): slices, their gradients and updates.
- `gather`, `scatter`, `partition`, `where`: indexing by arrays. `take` in `gather` is the gather of all families.
- `pad`, `space_to_batch`: padding, blocks, patches.
- `sort` (with `_radix_select`), `unique`, `tpu_top_k`: order statistics and sets.

Of `ops` it imports `ops.common` and `ops.registry`, never another family.
"""

from . import (  # noqa: F401
    concat_split,
    fill,
    gather,
    identity,
    pad,
    partition,
    permute,
    scatter,
    shape,
    slice,
    sort,
    space_to_batch,
    strided_slice,
    tpu_top_k,
    unique,
    where,
)
