"""Remove one guard at a time; its test must fail then.

Usage: ``python -m tools.reliability.guards --json OUT``.

It works on a copy of the tree. A test that passes without its guard is no test of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SECONDS = 240


@dataclasses.dataclass(frozen=True)
class Guard:
    """A check, and what would be missed without it."""

    against: str
    file: str
    there: str
    without: str
    test: str


def _off(against: str, file: str, condition: str, test: str) -> Guard:
    """Return a guard whose condition never holds."""
    indent = condition[: len(condition) - len(condition.lstrip())]
    return Guard(against, file, condition, f"{indent}if False:", test)


_GRAPHS = "tests/frontend/safety/test_hostile_graphs.py::"
_UNSAFE = "tests/frontend/safety/test_unsafe_ops.py::"
_NPZ = "tests/support/test_npz.py::test_other_files_are_refused"
_KERAS = "tests/frontend/safety/test_keras_config.py::"
_OUTPUT = "tests/export/test_atomic_dir.py::"
_ARTIFACTS = "tests/export/test_artifact.py::test_damaged_artifacts_are_refused"
_CALLS = "tests/stablehlo/parsing/test_custom_calls.py::"
_SCREENING = "tests/federated/aggregators/test_screening.py::"
_HERE = "tests/reliability/"
_INDEX = "tests/frontend/safety/test_checkpoint_index.py::"
_DATA = "tests/learning/data/test_federated_data.py::"

GUARDS = (
    _off(
        "graphs of very many nodes",
        "tf2jax_lite/frontend/graphdef/size_limits.py",
        "    if count > allowed:",
        f"{_GRAPHS}test_max_nodes_is_an_option_and_counts_functions",
    ),
    _off(
        "constants that declare much",
        "tf2jax_lite/frontend/graphdef/size_limits.py",
        "        if self._total > self._allowed:",
        f"{_GRAPHS}test_constants_count_together",
    ),
    _off(
        "functions that call each other too deeply",
        "tf2jax_lite/support/call_graph.py",
        "        if depth[name] > max_depth + 1:",
        f"{_GRAPHS}test_functions_nest_as_deep_as_tracing_can_follow",
    ),
    Guard(
        "ops that run code or touch files",
        "tf2jax_lite/frontend/safety/unsafe_ops.py",
        "    if not found:",
        "    if True:",
        f"{_UNSAFE}test_unsafe_ops_are_refused_by_name",
    ),
    Guard(
        "constant nodes that importing a graph evaluates",
        "tf2jax_lite/frontend/safety/unsafe_ops.py",
        "if node.name in names or not _has_state(node.op)]",
        "if node.name in names]",
        "tests/export/test_tf1_programs.py::test_nodes_that_tensorflow_would_run_are_refused",
    ),
    _off(
        "assets outside of the model",
        "tf2jax_lite/frontend/safety/unsafe_ops.py",
        "    if not inside and not is_trusted(name) and not is_trusted(file):",
        f"{_UNSAFE}test_assets_that_lead_out_of_the_model",
    ),
    _off(
        "tables filled from files elsewhere",
        "tf2jax_lite/frontend/safety/unsafe_ops.py",
        "    if not inside and not is_trusted(path):",
        f"{_UNSAFE}test_tables_that_read_files_which_are_no_assets",
    ),
    _off(
        "Keras layers that hold code",
        "tf2jax_lite/frontend/safety/keras_config.py",
        "    if found:",
        f"{_KERAS}test_layers_that_hold_code_are_refused",
    ),
    Guard(
        "layers of Keras that are not listed",
        "tf2jax_lite/frontend/safety/keras_config.py",
        "    elif not keras_names.is_class(name, module):",
        "    elif False:",
        f"{_KERAS}test_layer_of_a_new_release_is_refused_until_it_is_listed",
    ),
    Guard(
        "functions of TensorFlow in layers",
        "tf2jax_lite/frontend/safety/keras_config.py",
        "        if not keras_names.computes_in_tensorflow(name):",
        "        if False:",
        f"{_KERAS}test_function_of_tensorflow_is_allowed_by_its_name",
    ),
    _off(
        "layers that are called on constants",
        "tf2jax_lite/frontend/safety/keras_config.py",
        "        if not _is_symbolic(node):",
        f"{_KERAS}test_layer_called_on_constants_alone_is_refused",
    ),
    _off(
        "weights of Keras that no memory holds",
        "tf2jax_lite/frontend/safety/keras_config.py",
        "        if total > limit:",
        f"{_KERAS}test_weights_are_counted_before_they_are_made",
    ),
    _off(
        "compiled programs of others",
        "tf2jax_lite/export/program_cache.py",
        "        if not hmac.compare_digest(mac, _mac(secret, key, payload)):",
        "tests/export/test_program_cache.py::test_programs_without_the_mac_of_this_user_run_nothing",
    ),
    Guard(
        "folders of the user",
        "tf2jax_lite/export/atomic_dir.py",
        "    except FileExistsError:\n        raise ExportError",
        "    except FileExistsError:\n        shutil.rmtree(path)\n    if False:\n        raise ExportError",
        f"{_OUTPUT}test_new_directory_made_meanwhile_stays",
    ),
    Guard(
        "files of the user beside an artifact's",
        "tf2jax_lite/export/atomic_dir.py",
        "    if foreign:\n",
        "    if False:\n",
        f"{_OUTPUT}test_overwrite_replaces_only_an_artifact_of_ours",
    ),
    _off(
        "arrays in messages that announce more than there is",
        "tf2jax_lite/support/npz.py",
        "    if file.tell() + count * dtype.itemsize != len(data):",
        "tests/support/test_npz.py::test_other_arrays_of_messages_are_refused",
    ),
    Guard(
        "clients with weights beyond all bounds",
        "tf2jax_lite/federated/aggregators/base.py",
        "    return (weight >= 0) & (weight <= MAX_WEIGHT)",
        "    return weight == weight",
        f"{_SCREENING}test_the_others_aggregate_is_that_without_hostile_clients",
    ),
    Guard(
        "clients whose sum overflows",
        "tf2jax_lite/federated/aggregators/base.py",
        "2.0**_MAX_EXPONENT if bounded",
        "jnp.inf if bounded",
        f"{_SCREENING}test_the_others_aggregate_is_that_without_hostile_clients",
    ),
    Guard(
        "rounds that ruin the weights",
        "tf2jax_lite/federated/compose.py",
        "    finite = remains_finite(old, new)",
        "    finite = jnp.bool_(True)",
        f"{_SCREENING}test_a_round_that_would_ruin_the_weights_is_refused",
    ),
    Guard(
        "noise that is a function of public values",
        "tf2jax_lite/federated/aggregators/privacy.py",
        "    if not aggregation.is_secret:",
        "    if True:",
        "tests/federated/aggregators/test_entropy.py::test_a_round_never_has_the_same_noise_unless_a_test_asks",
    ),
    Guard(
        "results that leave clients beside a private aggregation",
        "tf2jax_lite/federated/compose.py",
        "        if missing := sorted(aggregation.guarantees - guarantees):",
        "        if missing := sorted(set()):",
        "tests/federated/test_guarantees.py::test_a_first_pass_in_the_clear_raises",
    ),
    _off("archives that unpack to very much", "tf2jax_lite/support/npz.py", "                    if left < 0:", _NPZ),
    _off("pickles in archives", "tf2jax_lite/support/npz.py", "                    if dtype.hasobject:", _NPZ),
    _off(
        "arrays that announce more than there is",
        "tf2jax_lite/support/npz.py",
        "                    if file.tell() + count * dtype.itemsize != member.file_size:",
        _NPZ,
    ),
    _off(
        "tensors larger than their checkpoint",
        "tf2jax_lite/frontend/saved/checkpoint_reader.py",
        "            if any(int(d) < 0 for d in shape) or needed > there:",
        "tests/frontend/safety/test_hostile_checkpoints.py::test_tensors_larger_than_their_files",
    ),
    _off(
        "links in HDF5 files",
        "tf2jax_lite/learning/data/client_files.py",
        "        if not isinstance(parent.get(name, getlink=True), self._h5py.HardLink):",
        f"{_DATA}test_hostile_hdf5",
    ),
    _off(
        "views for tables of clients",
        "tf2jax_lite/learning/data/sqlite.py",
        "            if table not in stored:",
        f"{_DATA}test_other_tables_and_views",
    ),
    _off(
        "paths in the names of an artifact's files",
        "tf2jax_lite/export/metadata.py",
        '    if not isinstance(name, str) or not name or Path(name).name != name or name.startswith("."):',
        _ARTIFACTS,
    ),
    _off(
        "artifacts that were changed",
        "tf2jax_lite/export/metadata.py",
        '        if sha256(artifact_file(folder, metadata, name)) != info["sha256"]:',
        _ARTIFACTS,
    ),
    _off(
        "files of an artifact that its metadata does not list",
        "tf2jax_lite/export/metadata.py",
        '    if not isinstance(name, str) or name not in metadata["files"]:',
        "tests/export/test_metadata.py::test_files_that_are_not_listed",
    ),
    _off(
        "custom calls that are not listed",
        "tf2jax_lite/stablehlo/parsing/child_process.py",
        "        if target not in self.calls.TARGETS:",
        _CALLS + "test_targets_that_are_not_listed",
    ),
    _off(
        "custom calls with buffers that do not fit",
        "tf2jax_lite/stablehlo/parsing/child_process.py",
        "        if wrong is not None:",
        _CALLS + "test_pivots_of_one_element",
    ),
    _off(
        "custom calls whose sizes do not fit in a call",
        "tf2jax_lite/stablehlo/parsing/exported.py",
        "        if shapes not in checked:",
        _CALLS + "test_sizes_that_only_a_call_determines",
    ),
    _off(
        "sizes of an artifact that take long to read",
        "tf2jax_lite/stablehlo/parsing/exported.py",
        "            if len(size) > _MAX_SIZE or _HARD.search(size):",
        _CALLS + "test_sizes_that_take_long_to_read",
    ),
    _off(
        "shardings in an artifact, whose reader aborts",
        "tf2jax_lite/stablehlo/parsing/exported.py",
        "        if is_sharded:",
        _CALLS + "test_shardings_are_refused",
    ),
    Guard(
        "derivatives with custom calls that do not fit",
        "tf2jax_lite/stablehlo/parsing/exported.py",
        "    while exported.has_vjp():",
        "    while False:",
        _CALLS + "test_derivatives_are_looked_at_as_well",
    ),
    Guard(
        "StableHLO functions that call the next one twice",
        "tf2jax_lite/stablehlo/parsing/isolation.py",
        "        current_config().max_nodes,",
        "        1 << 100,",
        _CALLS + "test_functions_that_call_the_next_one_twice",
    ),
    Guard(
        "StableHLO payloads that crash MLIR",
        "tf2jax_lite/stablehlo/parsing/isolation.py",
        '    if is_trusted("StableHLO"):',
        "    if True:",
        "tests/stablehlo/parsing/test_isolation.py::test_an_artifact_with_such_a_payload",
    ),
    _off(
        "pipes among a model's files",
        "tf2jax_lite/support/limits.py",
        "    if not stat.S_ISREG(mode):",
        f"{_UNSAFE}test_assets_that_are_pipes",
    ),
    _off(
        "artifacts of another version",
        "tf2jax_lite/export/metadata.py",
        '    if metadata.get("format_version") != FORMAT_VERSION:',
        _ARTIFACTS,
    ),
    _off(
        "shapes in checkpoints over which TensorFlow ends the process",
        "tf2jax_lite/frontend/safety/checkpoint_index.py",
        "    if len(sizes) > MAX_DIMENSIONS:",
        "tests/frontend/safety/test_hostile_checkpoints.py::test_shapes_over_which_tensorflow_ends_the_process",
    ),
    *(
        _off(against, "tf2jax_lite/frontend/safety/checkpoint_index.py", condition, f"{_INDEX}{test}")
        for against, condition, test in (
            (
                "keys of a checkpoint's index that occur twice",
                "                if (last is not None and key <= last) or key > highest:",
                "test_indexes_of_more_than_one_reading",
            ),
            (
                "blocks of a checkpoint's index that are read many times",
                "            if start < end:",
                "test_indexes_of_more_than_one_reading",
            ),
            (
                "keys of a checkpoint's index that share much",
                "        if self._left < 0:",
                "test_indexes_of_more_than_one_reading",
            ),
            (
                "parts of a variable with other shapes",
                "        if not fits or entries[key].slices:",
                "test_parts_that_are_not_those_of_their_tensor",
            ),
            (
                "strings of a checkpoint that announce much",
                "    if position + total > len(data):",
                "test_strings_that_announce_more_than_there_is",
            ),
        )
    ),
    _off(
        "strings of clients that all are one string of an HDF5 file",
        "tf2jax_lite/learning/data/client_files.py",
        "                if left < 0:",
        "tests/support/test_hdf5.py::test_strings_are_counted",
    ),
    _off(
        "strings of clients that unpack to much",
        "tf2jax_lite/learning/data/sqlite.py",
        "        if left[0] < 0:",
        "tests/learning/data/test_fedjax_sqlite.py::test_strings_count_in_memory",
    ),
    _off(
        "constants of strings that grow",
        "tf2jax_lite/lowering/interpreter/constant_folding.py",
        "        if found > limit:",
        "tests/lowering/interpreter/test_constant_size.py::test_strings_past_the_limit",
    ),
    _off(
        "shards that announce more than there is",
        "tf2jax_lite/learning/data/rows.py",
        "                if raw.tell() + size > end:",
        "tests/learning/data/test_training_data.py::test_files_that_announce_more_than_there_is",
    ),
    _off(
        "adapters whose rank, scale or values do not fit",
        "tf2jax_lite/finetuning/adapters.py",
        "            if a.ndim != 2 or b.ndim != 2 or a.shape[1] != rank or b.shape[0] != rank:",
        "tests/finetuning/test_adapters.py::test_files_of_adapters_that_are_damaged",
    ),
    Guard(
        "codes for terminals in names",
        "tf2jax_lite/cli/shared.py",
        "        return super().render_str(printable(text), **options)",
        "        return super().render_str(text, **options)",
        "tests/cli/test_names.py::test_what_the_shell_prints",
    ),
    Guard(
        "names that become source",
        "tf2jax_lite/export/codegen/module.py",
        "*docstring([self.doc(function)], 4), *lines",
        """f'    \"\"\"{self.doc(function)}\"\"\"', *lines""",
        "tests/export/codegen/test_source.py::test_names_never_become_code",
    ),
    Guard(
        "options that leak to other threads",
        "tf2jax_lite/support/config.py",
        "    with _overrides.holding((name, _checked(name, value))):",
        "    for _ in [update_config(name, value)]:",
        f"{_HERE}test_threads.py::test_options_do_not_leak_between_threads",
    ),
    Guard(
        "variables read into a trace around the conversion",
        "tf2jax_lite/frontend/concrete/concrete_function.py",
        "    with tf.init_scope():  # variables are read here",
        "    if True:  # variables are read here",
        f"{_HERE}test_inside_traces.py::test_inside_of_a_tf_function_with_values",
    ),
    Guard(
        "conversions that leave something",
        "tf2jax_lite/frontend/graphdef/nodes.py",
        "        if not spec.node_spec.functions and len(written)",
        "        if len(written)",
        "tests/frontend/graphdef/test_nodes.py::test_nodes_that_name_functions_are_not_kept",
    ),
    Guard(
        "pieces of an output",
        "tf2jax_lite/export/atomic_dir.py",
        "        yield private / _NEW\n        _finish(private / _NEW)\n",
        "        try:\n            yield private / _NEW\n        finally:\n            _place(private / _NEW, path)\n",
        "tests/export/test_artifact.py::test_failing_leaves_nothing",
    ),
    Guard(
        "training that goes on from another state",
        "tf2jax_lite/learning/loop.py",
        "            self.done, state, kept = found",
        "            self.done, _, kept = found",
        "tests/learning/test_loop.py::test_resumed_training_has_the_same_bits",
    ),
    Guard(
        "random graphs whose results differ",
        "tools/random_graphs/oracle.py",
        "            np.testing.assert_allclose(_wide(a), _wide(e),",
        "            str((_wide(a), _wide(e))) or dict(",
        "tests/random_graphs/test_random_graphs.py::test_a_wrong_op_is_found_and_made_small",
    ),
    Guard(
        "numbers that are wrong and no round-off",
        "tf2jax_lite/verification/roundoff_verdict.py",
        "        if not ours <= allowed:",
        "        if ours != ours:",
        "tests/verification/test_roundoff_error.py::test_a_wrong_op_is_told_from_round_off",
    ),
)


def without(guard: Guard, tree: Path) -> bool:
    """Return whether a guard's test fails, or ends the process, without it."""
    file = tree / guard.file
    text = file.read_text()
    if text.count(guard.there) != 1:
        raise ValueError(f"{guard.file} holds {guard.there!r} {text.count(guard.there)} times")
    file.write_text(text.replace(guard.there, guard.without))
    try:
        return not _passes([guard.test], tree)
    finally:
        file.write_text(text)


def _passes(tests: Sequence[str], tree: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    if done.returncode in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise ValueError(f"{tests}: {(done.stdout + done.stderr).decode()[-500:]}")
    return done.returncode == 0


def main() -> int:
    """Run the command; return 1 if a test does not notice that its guard is gone."""
    parser = argparse.ArgumentParser(prog="python -m tools.reliability.guards", description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="rows of guards that are not tried again are kept")
    parser.add_argument("--only", default="", help="guards whose description holds this text")
    options = parser.parse_args()
    chosen = [guard for guard in GUARDS if options.only in guard.against]
    known = {row[0]: row for row in json.loads(options.json.read_text())["rows"]} if options.json.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache"))
        if not _passes(sorted({guard.test for guard in chosen}), tree):
            print("with all guards there, a test fails")
            return 1
        for guard in chosen:
            failed = without(guard, tree)
            row = [guard.against, f"`{guard.file}`", f"`{guard.test}`", "fails" if failed else "PASSES"]
            known[guard.against] = row
            print(*row, flush=True)
    rows = [known[guard.against] for guard in GUARDS if guard.against in known]
    page = {
        "title": "Guards",
        "command": "python -m tools.reliability.guards --json docs/reliability/guards.json",
        "columns": ["against", "guard", "test", "without the guard the test"],
        "rows": rows,
        "notes": ["Each guard was taken away in a copy of the tree, alone, and its test run there."],
    }
    options.json.write_text(json.dumps(page, indent=1) + "\n")
    return 0 if all(row[-1] == "fails" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
