"""Sizes of arguments that are not fixed: symbolic dimensions, and multiples of them."""

import re

__all__ = ["MULTIPLE"]

# b, or 8*h
MULTIPLE = re.compile(r"(?:(?P<times>[1-9]\d*) ?\* ?)?(?P<name>[a-z][a-z0-9_]*)")
