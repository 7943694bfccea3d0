"""Random graphs: typed programs over the registered ops, run by TensorFlow and converted.

``python -m tools.random_graphs --count 10000 --seed 0 --json OUT`` runs many and writes the figures;
`test_random_graphs.py` runs a fixed slice. `programs` is what a graph is made of and how TensorFlow runs it, `material`
what ops are fed with, `generate` draws programs, `oracle` compares, `shrink` makes what differs small.
"""
