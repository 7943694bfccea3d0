"""Which tests run only with ``-m slow``, because they take long: ``python -m tests.slow RESULTS.xml``.

RESULTS.xml is what ``pytest -n 2 --junitxml=RESULTS.xml`` wrote on two cores. Tests that took longer than the limit are
listed in tests/slow.txt, but for those that are kept: of each thing that users do, one; and of each function's cases
(of ``test_case`` each op's) the quickest, if it takes no more than four times the limit. Other tests are marked where
they stand. What was slow before and did not run stays in the list.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

__all__ = ["slow_tests"]

LIST = Path(__file__).parent / "slow.txt"
LIMIT = 0.7  # seconds, of a machine that does nothing else
KEPT = (
    "tests/cli/test_cli.py::test_demo",
    "tests/cli/test_cli.py::test_errors_are_one_line_and_exit_code_2",
    "tests/cli/test_convert.py::test_keras_files_in_both_modes[keras]",
    "tests/cli/test_killed.py::test_killed_at_random_moments[3]",
    "tests/examples/test_custom_federated_algorithms.py::test_losses_of_every_round",
    "tests/export/test_artifact.py::test_backends_agree[stablehlo]",
    "tests/export/test_artifact.py::test_gradients_go_through_a_loop_that_data_ends",
    "tests/export/test_artifact.py::test_killing_never_leaves_a_broken_directory",
    "tests/export/test_source.py::test_source_computes_the_same[control_flow]",
    "tests/export/test_stored.py::test_an_artefact_has_its_derivatives[0.1.0.dev0]",
    "tests/federated/flower/test_flower.py::test_blocks_are_the_simulation[add]",
    "tests/federated/test_fed_avg.py::test_all_executions_agree_with_numpy[scan]",
    "tests/federated/test_fed_avg.py::test_all_executions_agree_with_numpy[vmap]",
    "tests/federated/test_mesh.py::test_two_processes",
    "tests/federated/test_training.py::test_resumed_training_has_the_same_bits[1]",
    "tests/loading/test_composites.py::test_sparse_arrays_of_jax_are_sparse_tensors",
    "tests/loading/test_tf1.py::test_an_lstm_and_its_training_step",
    "tests/lowering/test_extents.py::test_batches[mapped]",
    "tests/lowering/test_extents_loops.py::test_values_and_gradients[map of rows]",
    "tests/lowering/test_in_graph_gradients.py::test_recurrent_training_step[keras-LSTM-options0]",
    "tests/lowering/test_loops.py::test_gradients_backwards_forwards_and_of_many[in_a_branch]",
    "tests/lowering/test_loops.py::test_gradients_of_gradients",
    "tests/lowering/test_pieces.py::test_values_gradients_and_what_the_loop_reads[_sum-_slices-1-2]",
    "tests/models/test_demo_set.py::test_every_form_agrees_with_tensorflow[digits_cnn]",
    "tests/models/test_gradient_models.py::test_decoders[llama]",
    "tests/models/test_models.py::test_small_model[keras-gru]",
    "tests/models/test_models.py::test_small_model[keras-small_cnn]",
    "tests/ops/test_data_ended.py::test_finite_differences[nested]",
    "tests/ops/test_quantized.py::test_network[False]",
    "tests/ops/test_ragged_variant.py::test_batches_and_export",
    "tests/ops/test_random_claims.py::test_stateless[StatelessRandomUniform]",
    "tests/ops/test_random_distributions.py::test_few_that_are_left_go_on_by_themselves[17]",
    "tests/ops/test_random_generator.py::test_op[StatefulRandomBinomial-arguments13]",
    "tests/ops/test_strings.py::test_traced_text_is_joined_moved_and_hashed",
    "tests/random_graphs/test_random_graphs.py::test_a_few[5]",
    "tests/reliability/test_faults.py::test_interrupted_at_any_moment[convert-2]",
    "tests/stablehlo/test_flax_haiku.py::test_model[flax_cnn]",
    "tests/stablehlo/test_jax2tf.py::test_inside_tensorflow_control_flow",
    "tests/stablehlo/test_jax2tf.py::test_polymorphic_batch",
    "tests/test_arrows.py::test_import_leaves_tensorflow_out[tf2jax_lite.function]",
    "tests/test_arrows.py::test_import_leaves_tensorflow_out[tf2jax_lite.training]",
    "tests/training/test_federate.py::test_from_the_shell",
    "tests/training/test_finetune.py::test_from_the_shell",
    "tests/training/test_to_tf.py::test_a_keras_model_back_to_both_forms",
    "tests/verification/test_artefact.py::test_seeds_that_keras_draws_anew",
)


def slow_tests() -> frozenset[str]:
    """Returns the node ids in the list."""
    return frozenset(LIST.read_text().splitlines())


def measured(results: Path) -> dict[str, float]:
    """Returns seconds by node id, of tests that passed or failed."""
    found = {}
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        name, place = case.get("name"), case.get("classname")
        if name is not None and place is not None and case.find("skipped") is None:
            found[f"{place.replace('.', '/')}.py::{name}"] = float(case.get("time", 0))
    return found


def _group(test: str) -> str:
    function, _, case = test.partition("[")
    return f"{function}[{case.rstrip(']').split('-')[0]}" if function.endswith("::test_case") else function


def quickest(seconds: Mapping[str, float]) -> set[str]:
    """Returns of each group of cases the one that took the shortest, but for those that took long all the same."""
    found: dict[str, str] = {}
    for test, took in seconds.items():
        if took <= 4 * LIMIT and took < seconds.get(found.get(_group(test), ""), float("inf")):
            found[_group(test)] = test
    return set(found.values())


def main(results: Path) -> None:
    """Writes the list."""
    seconds = measured(results)
    slow = {test for test, took in seconds.items() if took > LIMIT} - quickest(seconds)
    slow |= {test for test in slow_tests() if test not in seconds}
    LIST.write_text("".join(f"{test}\n" for test in sorted(slow.difference(KEPT))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
