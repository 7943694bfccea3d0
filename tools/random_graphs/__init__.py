"""Random graphs: typed programs over registered ops, in TensorFlow and JAX.

``python -m tools.random_graphs --count 10000 --seed 0 --json OUT`` runs many and writes the figures;
`test_random_graphs.py` runs a fixed slice. `programs` is what a graph is made of and how TensorFlow runs it, `material`
what ops are fed with, `generate` draws programs, `oracle` compares, `shrink` makes what differs small.
"""
