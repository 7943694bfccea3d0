"""Generators of pages of the documentation, from records or from the cases of tests."""
