"""Rows of examples: see `tf2jax_lite.learning.data.rows`."""

from tf2jax_lite.learning.data.rows import open_rows as open_rows
