"""Sizes of arguments that are not fixed: symbolic dimensions, multiples of them, and these with an offset."""

import re

__all__ = ["MULTIPLE"]

# b, 8*h, or b+1 (row splits beside a batch)
MULTIPLE = re.compile(r"(?:(?P<times>[1-9]\d*) ?\* ?)?(?P<name>[a-z][a-z0-9_]*)(?: ?\+ ?(?P<more>[1-9]\d{0,8}))?")
