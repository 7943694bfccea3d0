"""Generators of documentation pages, from records or from test cases."""
