"""Print the coverage page."""

from . import markdown

print(markdown(), end="")
