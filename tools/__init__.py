"""Commands for developers: page generators, and checks too long for tests."""
