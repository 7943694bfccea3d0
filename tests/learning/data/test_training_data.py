"""Training data in files: equal rows of all formats, orders, starts of batches."""

import io
import itertools
import pickle
import zipfile

import numpy as np
import optax
import pytest

import tf2jax_lite
from tf2jax_lite.errors import DataError, InputError
from tf2jax_lite.finetuning import finetune
from tf2jax_lite.learning.data import RowData, StreamedData, as_training_data, open_data, open_rows
from tf2jax_lite.learning.data.example_proto import new_example
from tf2jax_lite.learning.sources import create_model_from_fn

N = 50
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3)).astype(np.float32)
ROWS = {"x": X, "y": (X @ [1.0, -2.0, 0.5]).astype(np.float32), "number": np.arange(N)}


def messages(part):
    for i in part:
        example = new_example()
        example.features.feature["x"].float_list.value.extend(ROWS["x"][i])
        example.features.feature["y"].float_list.value.append(ROWS["y"][i])
        example.features.feature["number"].int64_list.value.append(i)
        yield example.SerializeToString()


def write_npz(file, part):
    np.savez(file, **{name: value[part] for name, value in ROWS.items()})


def write_compressed(file, part):
    np.savez_compressed(file, **{name: value[part] for name, value in ROWS.items()})


def write_tfrecord(file, part):
    """The reader does not look at checksums."""
    with file.open("wb") as out:
        for data in messages(part):
            out.write(len(data).to_bytes(8, "little") + bytes(4) + data + bytes(4))


def write_rows(file, arrays):
    """Write arrays (n, ...) of floats or integers as a TFRecord file."""
    with file.open("wb") as out:
        for i in range(len(arrays["y"])):
            example = new_example()
            for name, value in arrays.items():
                feature = example.features.feature[name]
                kind = feature.float_list if value.dtype.kind == "f" else feature.int64_list
                kind.value.extend(np.ravel(value[i]).tolist())
            data = example.SerializeToString()
            out.write(len(data).to_bytes(8, "little") + bytes(4) + data + bytes(4))


def write_array_record(file, part):
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(file), "group_size:1")
    for data in messages(part):
        writer.write(data)
    writer.close()


def write_parquet(file, part):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {name: list(value[part]) if value.ndim > 1 else value[part] for name, value in ROWS.items()}
    parquet.write_table(pa.table(columns), file, row_group_size=7)


WRITERS = {
    ".npz": write_npz,
    "compressed.npz": write_compressed,
    ".tfrecord": write_tfrecord,
    ".array_record": write_array_record,
    ".parquet": write_parquet,
}


@pytest.fixture(scope="module", params=WRITERS)
def folder(request, tmp_path_factory):
    """A folder with three shards of one kind."""
    if request.param != ".npz":
        pytest.importorskip("grain")
    found = tmp_path_factory.mktemp("shards")
    for number, part in enumerate(np.split(np.arange(N), [20, 33])):
        WRITERS[request.param](found / f"train-{number}{request.param}", part)
    return found


def joined(batches):
    found = list(batches)
    return {name: np.concatenate([batch[name] for batch in found]) for name in found[0]}


def test_files_have_the_rows_that_were_written(folder):
    rows = open_rows(folder)
    assert len(rows) == N
    for i in (0, 19, 20, 49):
        for name, value in ROWS.items():
            np.testing.assert_array_equal(rows[i][name], value[i])
    with pytest.raises(IndexError):
        rows[N]
    again = pickle.loads(pickle.dumps(rows))  # as worker processes get it
    np.testing.assert_array_equal(again[33]["x"], ROWS["x"][33])
    assert again.identity() == rows.identity()


@pytest.mark.default_cases(".parquet")
def test_epochs_are_permutations_that_start_anywhere(folder):
    pytest.importorskip("grain")
    data = open_data(folder)
    whole = [batch["number"] for batch in data.epoch(1, 8, seed=3)]
    assert [len(batch) for batch in whole] == [8] * 6 + [2]
    order = np.concatenate(whole)
    assert sorted(order) == list(range(N)) and order.tolist() != sorted(order)
    assert joined(open_data(folder).epoch(1, 8, seed=3, skip=4))["number"].tolist() == order[32:].tolist()
    others = [joined(data.epoch(2, 8, seed=3))["number"], joined(data.epoch(1, 8, seed=4))["number"]]
    assert all(other.tolist() != order.tolist() for other in others)
    padded = list(data.in_order(16))
    np.testing.assert_array_equal(joined(padded)["number"][:N], np.arange(N))
    assert joined(padded)["__mask__"].sum() == N and {len(batch["x"]) for batch in padded} == {16}
    np.testing.assert_array_equal(data.first(3)["x"], ROWS["x"][:3])


def test_workers_read_the_same(tmp_path):
    pytest.importorskip("grain")
    write_tfrecord(tmp_path / "a.tfrecord", np.arange(N))
    expected = joined(open_data(tmp_path).epoch(0, 8, seed=0))
    found = joined(open_data(tmp_path, workers=2).epoch(0, 8, seed=0))
    np.testing.assert_array_equal(found["number"], expected["number"])


@pytest.mark.full
def test_tensorflow_writes_what_is_read(tmp_path):
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord-00000-of-00001")) as writer:
        for data in messages(range(N)):
            writer.write(data)
    rows = open_rows(tmp_path)
    np.testing.assert_array_equal(np.stack([rows[i]["x"] for i in range(N)]), ROWS["x"])


def model():
    return create_model_from_fn({"w": np.zeros(3, np.float32)}, lambda p, b: (b["x"] @ p["w"])[:, None], "mse")


@pytest.mark.full
def test_sequences_and_iterables_are_data():
    """A list of rows is a data set, as is anything that starts again for each epoch."""
    pytest.importorskip("grain")
    rows = [{name: value[i] for name, value in ROWS.items()} for i in range(N)]
    data = RowData(rows)
    assert joined(data.epoch(0, 8, 0))["number"].tolist() == joined(data.epoch(0, 8, 0))["number"].tolist()

    class Stream:
        def __iter__(self):
            return iter(rows)

    stream = StreamedData(Stream(), N)
    assert joined(stream.epoch(0, 8, 0, skip=2))["number"].tolist() == list(range(16, N))
    assert (
        joined(stream.prepared(lambda batch: {"x": -batch["x"]}).in_order(8))["x"][:N].tolist() == (-ROWS["x"]).tolist()
    )
    for found in (data, stream):
        _, history = finetune(model(), found, optimizer=optax.sgd(0.1), epochs=2, batch_size=8, eval_examples=found)
        assert history.records[2]["eval/loss"] < history.records[0]["eval/loss"]
    with pytest.raises(InputError, match="starts again"):
        StreamedData(iter(rows), N)
    with pytest.raises(InputError, match="no examples to train on"):
        as_training_data(StreamedData(Stream(), 0))
    with pytest.raises(InputError, match="the list has no examples; 5 were announced"):
        StreamedData([], 5).first(2)
    with pytest.raises(InputError, match="epoch 1 has no batch of 8 examples"):
        finetune(model(), StreamedData([], 5), optimizer=optax.sgd(0.1), epochs=1, batch_size=8)


def test_python_values_are_data(tmp_path):
    """Arrays, tables, paths, sequences and sized iterables; others raise an error."""
    grain = pytest.importorskip("grain")
    rows = [{name: value[i] for name, value in ROWS.items()} for i in range(N)]
    np.savez(tmp_path / "a.npz", **ROWS)

    class Table:
        def keys(self):
            return list(ROWS)

        def __getitem__(self, name):
            return ROWS[name]

    class Sized:
        def __len__(self):
            return N

        def __iter__(self):
            return iter(rows)

    dataset = grain.MapDataset.source(rows)
    for given in (ROWS, Table(), tmp_path / "a.npz", str(tmp_path), rows, dataset, Sized()):
        data = as_training_data(given)
        assert len(data) == N
        np.testing.assert_array_equal(data.first(3)["number"], np.arange(3))
        assert sorted(joined(data.epoch(0, 8, 0))["number"]) == list(range(N))
    for given in (iter(rows), dataset.to_iter_dataset(), None, 3):
        with pytest.raises(InputError, match=r"needs StreamedData\(iterable, num_examples\)"):
            as_training_data(given)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([(X[0], 1)], "an example is a dict of arrays or numbers by name, not empty; not tuple"),
        ([{"x": 1, "y": 2}, {"x": 1}], r"by name, \['x'.*\]; not \['x'"),
        ([{"x": X[0]}, {"x": X[0, :2]}], "the examples' 'x' differ in shape .* Pad them"),
        ([{}], "not empty; not"),
    ],
)
def test_rows_that_do_not_stack(rows, says):
    pytest.importorskip("grain")
    for data in (RowData(rows, threads=0), StreamedData(rows, len(rows))):
        with pytest.raises(DataError, match=says):
            list(data.epoch(0, 8, 0))
        with pytest.raises(DataError, match=says):
            data.first(8)


@pytest.mark.full
def test_datasets_of_hugging_face_are_data():
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("grain")
    rows = datasets.Dataset.from_dict({name: value.tolist() for name, value in ROWS.items()})
    expected = joined(RowData([{name: value[i] for name, value in ROWS.items()} for i in range(N)]).epoch(1, 8, 0))
    for data in (RowData(rows), RowData(rows.with_format("numpy"))):
        found = joined(data.epoch(1, 8, 0))
        assert found["number"].tolist() == expected["number"].tolist()
        np.testing.assert_allclose(found["x"], expected["x"], rtol=1e-6)
    stream = joined(StreamedData(rows.to_iterable_dataset(), N).epoch(0, 8, 0))
    assert stream["number"].tolist() == list(range(N))


@pytest.mark.full
def test_training_goes_on_within_an_epoch_of_shards(tmp_path):
    pytest.importorskip("grain")
    write_tfrecord(tmp_path / "a.tfrecord", np.arange(N))
    options = {"optimizer": optax.adam(0.1), "epochs": 2, "batch_size": 8, "checkpoint_steps": 3}
    expected, _ = finetune(model(), open_data(tmp_path / "a.tfrecord"), **options)

    class Killed(Exception):
        pass

    seen = itertools.count()

    def limited(batch):
        if next(seen) == 11:
            raise Killed
        return batch

    where = {**options, "checkpoint_dir": tmp_path / "state"}
    with pytest.raises(Killed):
        finetune(model(), open_data(tmp_path / "a.tfrecord").prepared(limited), **where)
    found, _ = finetune(model(), open_data(tmp_path / "a.tfrecord"), **where)
    np.testing.assert_array_equal(found.trainable["w"], expected.trainable["w"])


def test_files_that_are_no_data(tmp_path):
    def refused(says, name="a.npz"):
        with pytest.raises(DataError, match=says):
            open_rows(tmp_path / name)

    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(3), y=np.zeros(2))
    refused("differ in the number of examples")
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(()))
    refused("differ in the number of examples")
    np.savez(tmp_path / "a.npz", x=np.zeros(3), y=np.zeros(2))
    refused("differ in the number of examples")
    np.savez(tmp_path / "a.npz", x=np.asfortranarray(np.zeros((3, 2))))
    refused("not an array of numbers in C order")
    (tmp_path / "a.npz").write_bytes(b"PK")
    refused("not readable .npz files")
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes().replace(b"NUMPY", b"NUMPX"))
    refused("not a readable .npz")
    (tmp_path / "a.txt").write_text("")
    refused(r"expected files of one of the kinds .npz, .array_record", "a.txt")
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    refused(r"found \['.npz', '.txt'\]", ".")
    write_tfrecord(tmp_path / "a.tfrecord", range(3))
    content = (tmp_path / "a.tfrecord").read_bytes()
    (tmp_path / "a.tfrecord").write_bytes(content[:-5])
    refused("see record 2", "a.tfrecord")
    example = new_example()
    example.features.feature["image"].bytes_list.value.append(b"png")
    data = example.SerializeToString()
    (tmp_path / "a.tfrecord").write_bytes(len(data).to_bytes(8, "little") + bytes(4) + data + bytes(4))
    refused(r"features \['image'\] are bytes", "a.tfrecord")
    (tmp_path / "two").mkdir()
    np.savez(tmp_path / "two" / "a.npz", x=np.zeros(3))
    np.savez(tmp_path / "two" / "b.npz", x=np.zeros((3, 2)))
    refused("differ from those of", "two")
    np.savez_compressed(tmp_path / "two" / "b.npz", x=np.zeros((3, 2)))
    refused("names or shapes differ from those of", "two")


def npz_that_announces(path, shape, dtype="|i1", *, packed=False):
    """Write an .npz whose directory and header announce an array that is not there."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": dtype, "fortran_order": False, "shape": shape})
    data = head.getvalue()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        archive.writestr("x.npy", data)
        archive.filelist[0].file_size = len(data) + int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        archive.start_dir = archive.fp.tell()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((2, 1 << 40), "announces|max_input_bytes"),
        ((1 << 62,), "announces|max_input_bytes"),
        ((1 << 62, 0), "no values"),
        ((0, 1 << 40), None),
    ],
)
def test_files_that_announce_more_than_there_is(tmp_path, shape, says, packed):
    npz_that_announces(tmp_path / "a.npz", shape, packed=packed)
    if says is None:
        assert len(open_rows(tmp_path / "a.npz")) == 0
        return
    with pytest.raises(DataError, match=says):
        open_rows(tmp_path / "a.npz")


def test_parquet_files_that_announce_more_than_is_read(tmp_path):
    write_parquet(tmp_path / "a.parquet", np.arange(N))
    with tf2jax_lite.override_config("max_input_bytes", 100), pytest.raises(DataError, match="row group 0 takes more"):
        open_rows(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", WRITERS)
def test_damaged_files_end_in_our_errors(tmp_path, kind):
    """Each changed file is read or refused; so is one that disappears."""
    if kind != ".npz":
        pytest.importorskip("grain")
    path = tmp_path / f"a{kind}"
    WRITERS[kind](path, np.arange(N))
    written, rng = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        broken = bytearray(written)
        start = int(rng.integers(len(broken)))
        broken[start : start + int(rng.integers(1, 40))] = rng.bytes(int(rng.integers(0, 40)))
        path.write_bytes(broken)
        try:
            rows = open_rows(path)
            for i in range(min(len(rows), N)):
                rows[i]
        except DataError:
            refused += 1
    assert refused > (0 if kind == ".array_record" else 10)
    path.write_bytes(written)
    rows = open_rows(path)
    path.unlink()
    if kind not in (".tfrecord", ".array_record"):  # these are open
        with pytest.raises(DataError, match=r"a.*: "):
            rows[0]
    with pytest.raises(DataError):
        open_rows(path)
