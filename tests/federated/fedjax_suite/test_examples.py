"""FedJAX's example of EMNIST runs with other names in six of its 45 lines.

Its algorithm, written out in another file, runs with another import.
"""

import ast
import difflib
import os
import runpy
from pathlib import Path

import pytest

from tf2jax_lite.federated.datasets import StandardDataset

IMPORT = {"import fedjax": "from tf2jax_lite import federated as fedjax"}
LINES = {
    "fed_avg": IMPORT,
    "emnist_fed_avg": {
        **IMPORT,
        "train_fd, test_fd = fedjax.datasets.emnist.load_data(only_digits=False)": (
            "train_fd, test_fd = (fedjax.datasets.EMNIST.load_data(f'emnist_{split}.h5').preprocess_client("
            "fedjax.tokenizers.emnist_images) for split in ('train', 'test'))"
        ),
        "model = fedjax.models.emnist.create_conv_model(only_digits=False)": (
            "model = fedjax.models.create_conv_model(only_digits=False)"
        ),
        "train_client_sampler = fedjax.client_samplers.UniformGetClientSampler(": (
            "train_client_sampler = fedjax.UniformGetClientSampler("
        ),
        "fd=train_fd, num_clients=10, seed=0)": "train_fd, num_clients=10, seed=0)",
        "fedjax.serialization.save_state(server_state.params, '/tmp/params')": (
            "fedjax.CheckpointFile('params').save(1500, server_state.params)"
        ),
    },
}


def code(text):
    """Return the lines of code, without comments and docstrings."""
    documented = (ast.Module, ast.FunctionDef, ast.ClassDef)
    nodes = [n.body[0] for n in ast.walk(ast.parse(text)) if isinstance(n, documented) and ast.get_docstring(n)]
    texts = {line for node in nodes for line in range(node.lineno, node.end_lineno + 1)}
    lines = enumerate(text.splitlines(), 1)
    return [line for i, line in lines if i not in texts and line.strip() and not line.strip().startswith("#")]


def ported(source, lines):
    """Return a program with other lines, and how many differ."""
    changed = list(source)
    for old, new in lines.items():
        (place,) = [i for i, line in enumerate(source) if line.strip() == old]
        changed[place] = source[place].replace(old, new)
    removed = [line for line in difflib.ndiff(source, changed) if line.startswith("- ")]
    return changed, len(removed)


@pytest.mark.nightly
def test_emnist_runs_with_six_other_lines(tmp_path, monkeypatch, capsys):
    """The variable FEDJAX_SOURCE is the folder of FedJAX's repository."""
    folder = os.environ.get("FEDJAX_SOURCE")
    if not folder:
        pytest.skip("FEDJAX_SOURCE is not set")
    counts = {}
    for name, lines in LINES.items():
        source = code((Path(folder) / "examples" / f"{name}.py").read_text())
        changed, count = ported(source, lines)
        counts[name] = (count, len(source))
        (tmp_path / f"{name}.py").write_text("\n".join(changed).replace("1501", "11"))  # one evaluation
    assert counts == {"fed_avg": (1, 51), "emnist_fed_avg": (6, 45)}
    monkeypatch.setattr(StandardDataset, "load_data", lambda self, path: self.synthetic(12, most=40))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    runpy.run_path("emnist_fed_avg.py")["main"](None)
    printed = capsys.readouterr().out
    assert printed.count("[round ") == 12 and printed.count("accuracy") == 2
    assert (tmp_path / "params" / "training.safetensors").exists()
