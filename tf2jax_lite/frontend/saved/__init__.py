"""SavedModels, MetaGraphs, frozen graphs and checkpoints to IR graphs.

Entries, by kind of file: `saved_model.SavedModel`, `meta_graph.load_signature`, `graph_def_file.load_frozen`. Read:

- `saved_model`: directories, tags, signatures and object graphs.
- `meta_graph`: TF1 graphs with their variables and tables lifted to captures.
- `graph_def_file`: GraphDef files, and results by name.
- `checkpoint_reader`, `lookup_tables`: values, read without running the graph.
- `ref_variables`: reference variables to resource variables.

Functions that only describe a model leave TensorFlow out; the others import it themselves.
Must not import `passes` or `lowering`; initializers of variables are evaluated by an injected callable.
"""
