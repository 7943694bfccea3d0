"""One case or more for each primitive that jax lowers."""

from .cases_arrays import INDEXING, REDUCTIONS, SHAPES, SORTING
from .cases_math import DTYPES, ELEMENTWISE
from .cases_products import LINALG, PRODUCTS
from .cases_programs import CONTROL, RANDOM

CASES = [*ELEMENTWISE, *DTYPES, *PRODUCTS, *REDUCTIONS, *SHAPES, *INDEXING, *SORTING, *LINALG, *RANDOM, *CONTROL]
