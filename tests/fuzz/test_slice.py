"""A fixed slice of `python -m tools.fuzz`, and all its earlier findings."""

from pathlib import Path

import pytest

from tools.fuzz import mutators
from tools.fuzz.corpus import make_corpus
from tools.fuzz.supervisor import fuzz
from tools.fuzz.targets import limits, make_targets
from tools.fuzz.worker import input_of, read_one

FINDINGS = sorted((Path(__file__).parent.parent.parent / "testdata" / "fuzz").glob("*-*"))
# What needs no second start of TensorFlow, and what costs little.
SLICE = (
    "graph",
    "saved_model",
    "artifact_json",
    "safetensors",
    "sqlite",
    "tff_sqlite",
    "npz",
    "hdf5",
    "fedjax",
    "leaf",
    "adapters",
    "rows",
    "checkpoint_index",
    "checkpoint",
    "stablehlo_text",
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "corpus"
    make_corpus(folder)
    return folder


@pytest.mark.full
def test_every_damaged_file_is_read_or_refused(corpus, tmp_path):
    targets = make_targets(corpus, tmp_path, (*SLICE, "stablehlo_bytes", "saved_model_convert"))
    found = []
    with limits():
        for name, target in targets.items():
            for number in range(40):
                source, data = input_of(target, name, 0, number)
                outcome, trace = read_one(target, source, data)
                if trace:
                    found.append(f"{name} {number}: {outcome}\n{trace}")
    assert not found, "\n".join(found)


@pytest.mark.full
def test_the_good_files_are_read(corpus, tmp_path):
    """Otherwise the fuzzing would only see the first check."""
    targets = make_targets(corpus, tmp_path)
    for name, target in targets.items():
        if name == "saved_model_tensorflow":
            continue
        for source, data in target.seeds.items():
            with limits():
                assert read_one(target, source, data) == ("read", ""), f"{name} {source}"


@pytest.mark.default_cases(
    "graph-input-in-loop.pb", "graph-output-in-loop.pb", "saved_model_tensorflow-function-named-signatures"
)
@pytest.mark.parametrize("path", FINDINGS, ids=lambda p: p.name)
def test_findings_stay_fixed(path, corpus, tmp_path):
    """Each file is named ``<target>-<what it is>``."""
    name = path.name.split("-")[0]
    target = make_targets(corpus, tmp_path, (name,))[name]
    source = next(s for s in sorted(target.seeds) if Path(s).suffix == path.suffix)
    with limits():
        assert read_one(target, source, path.read_bytes())[1] == ""


@pytest.mark.full
def test_inputs_are_the_same_each_time(corpus, tmp_path):
    target = make_targets(corpus, tmp_path, ("graph",))["graph"]
    assert [input_of(target, "graph", 7, i) for i in range(20)] == [input_of(target, "graph", 7, i) for i in range(20)]
    assert len({input_of(target, "graph", 7, i)[1] for i in range(20)}) > 10


@pytest.mark.full
def test_mutators_take_any_bytes():
    import random

    for seed in range(50):
        assert isinstance(mutators.flip_bytes(random.Random(seed), b""), bytes)
        assert isinstance(mutators.json_values(random.Random(seed), b"{not json"), bytes)


@pytest.mark.full
def test_the_supervisor_goes_on_behind_what_kills_its_worker(corpus):
    """Slow: it starts workers, each with an import of JAX."""
    found = fuzz(corpus, 0, ("safetensors", "npz"), inputs=200, quiet=True)
    assert found["inputs"] == 200
    assert found["findings"] == []
