"""TensorFlow to IR: the only importer of TensorFlow beside verification and the shell.

Read `graphdef` (protos), `concrete` (ConcreteFunctions), `saved` (SavedModels, checkpoints), then `gradients`,
`runtime` (TensorFlow run on our behalf) and `safety` (untrusted files). Imports `calling`, `ops` and `ir`; of
`passes` and `lowering` only what tests/test_arrows.py lists.
"""
