"""SavedModels, MetaGraphs, frozen graphs and checkpoints to IR graphs.

`saved_model`, `meta_graph` and `graph_def_file` are the entries, by kind of file. `checkpoint_reader` and
`lookup_tables` read values without running the model, `ref_variables` and `legacy_tensor_arrays` bring TF1 graphs to
today's ops.
"""
