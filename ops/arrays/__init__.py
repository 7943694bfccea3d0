"""Ops that create, query, move and rearrange array data.

Read `identity` (constants, placeholders) and `shape` first, then `slice` and `gather`. Its `take` is the gather of all
families.

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
    unique,
    where,
)
