"""Readers of training data, under the names that scripts import.

rows: examples of files, row by row.
clients: the clients of federated training.
"""
