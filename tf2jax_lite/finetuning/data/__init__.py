"""Readers of training data under the names that scripts import: `learning.data`."""
