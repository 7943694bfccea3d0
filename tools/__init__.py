"""Commands for developers: they write pages of the documentation, or run too long for the tests."""
