"""Tables in text files, folders of images, and data sets of the Hugging Face Hub.

Tables are read into memory: columns of CSV files, and fields of JSON lines. Errors name the line.
"""

from __future__ import annotations

import csv
import importlib
import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.learning.data.rows import Example, Rows
from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import DataError, MissingLibraryError
from tf2jax_lite.support.limits import reading, regular

_ROWS = 4096
"""Rows that are text at a time."""
_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
HUB = "hf://datasets/"
"""The begin of addresses of data sets of the Hugging Face Hub."""


def read_csv(files: Sequence[Path]) -> Example:
    """Return the columns of CSV files, whose first line has their names.

    Columns of integers are int64, others float64.

    Raises:
      DataError: a value is not a number, a line has too many or too few, or the files differ in columns.
    """
    return _read_tables(files, _csv_blocks)


def read_json_lines(files: Sequence[Path]) -> Example:
    """Return the fields of JSON lines.

    Each line is an object, with numbers or nested lists of them.

    Raises:
      DataError: a line is not such an object, or has other fields or shapes than the first.
    """
    return _read_tables(files, _json_blocks)


TABLES: Mapping[str, Any] = {".csv": read_csv, ".jsonl": read_json_lines}
"""Readers of tables by the suffix of their files."""


def _read_tables(files: Sequence[Path], blocks_of: Any) -> Example:
    blocks: list[Example] = []
    limit, size = current_config().max_input_bytes, 0
    for file in files:
        with reading(str(regular(file, DataError)), DataError):
            for block in blocks_of(file):
                if blocks and block.keys() != blocks[0].keys():
                    raise DataError(f"{file} has the columns {list(block)}, and {files[0]} has {list(blocks[0])}.")
                size += sum(array.nbytes for array in block.values())
                if size > limit:
                    raise DataError(
                        f"{file}: the table takes more than max_input_bytes ({limit}). Write Parquet files, which are "
                        "read part by part."
                    )
                blocks.append(block)
    if not blocks:
        raise DataError(f"{files[0]} has no rows.")
    return {name: _joined([block[name] for block in blocks], f"{files[0].parent}: {name!r}") for name in blocks[0]}


def _joined(parts: Sequence[np.ndarray], where: str) -> np.ndarray:
    try:
        return np.concatenate(parts)
    except ValueError as error:
        raise DataError(f"{where} differs in shape from row to row: {error}.") from error


def _csv_blocks(file: Path) -> Iterator[Example]:
    """Yield the columns of some rows after another."""
    with file.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream)
        names = [name.strip() for name in next(reader, [])]
        if not names or len(set(names)) < len(names) or "" in names:
            raise DataError(f"{file}: its first line is not names of columns that differ, but {names[:20]}.")
        rows: list[list[str]] = []
        lines: list[int] = []
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                raise DataError(f"{file}, line {reader.line_num}: {len(row)} values for {len(names)} columns.")
            rows.append(row)
            lines.append(reader.line_num)
            if len(rows) == _ROWS:
                yield _columns(file, names, rows, lines)
                rows, lines = [], []
        if rows:
            yield _columns(file, names, rows, lines)


def _columns(file: Path, names: Sequence[str], rows: Sequence[Sequence[str]], lines: Sequence[int]) -> Example:
    return {
        name: _column(file, name, values, lines) for name, values in zip(names, zip(*rows, strict=True), strict=True)
    }


def _column(file: Path, name: str, values: Sequence[str], lines: Sequence[int]) -> np.ndarray:
    """Return texts as integers, or else as floats."""
    for dtype in (np.int64, np.float64):
        try:
            return np.asarray(values).astype(dtype)
        except (ValueError, OverflowError):
            continue
    for value, line in zip(values, lines, strict=True):
        try:
            float(value)
        except ValueError:
            raise DataError(
                f"{file}, line {line}: {name!r} is {value[:50]!r}, and a model takes numbers. Map texts to integers."
            ) from None
    raise DataError(f"{file}: {name!r} has values that are not numbers.")


def _json_blocks(file: Path) -> Iterator[Example]:
    """Yield the fields of each line."""
    first: Example = {}
    with file.open("rb") as stream:
        for number, text in enumerate(stream, 1):
            if not text.strip():
                continue
            try:
                found = json.loads(text)
            except ValueError as error:
                raise DataError(f"{file}, line {number} is not JSON: {error}.") from None
            if not isinstance(found, dict) or not found:
                raise DataError(f"{file}, line {number} is an object with fields, not {str(found)[:50]}.")
            row = {name: _numbers(value, f"{file}, line {number}: {name!r}") for name, value in found.items()}
            first = first or row
            for name in (*first, *row):
                if name not in row or name not in first or row[name].shape != first[name].shape:
                    there = list(row[name].shape) if name in row else "missing"
                    raise DataError(f"{file}, line {number}: {name!r} is {there}, unlike in the first line.")
            yield {name: value[None] for name, value in row.items()}


def _numbers(value: Any, where: str) -> np.ndarray:
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{where} is no array: {str(error).split('.')[0]}.") from None
    if found.dtype.kind not in "biuf":
        raise DataError(f"{where} is {str(value)[:50]!r}, and a model takes numbers.")
    return found


class ImageFolder(Rows):
    """Images in a folder for each class, decoded one by one.

    Classes are the folders' names in order. Examples have ``image``, uint8 (height, width, channels), and the class.

    Args:
      path: the folder.
      label: the name of the class in examples.
      shape: (height, width, channels) to which images are resized; by default those of the first image.

    Raises:
      DataError: there are no such folders, or a file is no image.
      MissingLibraryError: Pillow is not installed.
    """

    def __init__(self, path: Path, label: str = "y", shape: Sequence[int] | None = None):
        folders = image_classes(path)
        self.classes = [folder.name for folder in folders]
        self._label = label
        self._files = [
            (regular(file, DataError), number)
            for number, folder in enumerate(folders)
            for file in sorted(folder.iterdir())
            if file.suffix.lower() in _IMAGES
        ]
        try:
            self._image: Any = importlib.import_module("PIL.Image")
        except ImportError as error:
            raise MissingLibraryError(f"images need Pillow: pip install 'tf2jax-lite[images]' ({error})") from error
        self._shape = tuple(shape) if shape is not None else self._decoded(self._files[0][0], None).shape

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_image": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _image=importlib.import_module("PIL.Image"))

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Example:
        file, number = self._files[index]
        return {"image": self._decoded(file, self._shape), self._label: np.asarray(number, np.int32)}

    def _decoded(self, file: Path, shape: tuple[int, ...] | None) -> np.ndarray:
        with reading(str(file), DataError), self._image.open(file) as image:
            width, height = image.size
            if 4 * width * height > current_config().max_input_bytes:
                raise DataError(f"{file}: the image of {width} x {height} pixels takes more than max_input_bytes.")
            mode = "L" if shape is not None and shape[2] == 1 else "RGB"
            found = image.convert(mode)
            if shape is not None and (height, width) != shape[:2]:
                found = found.resize((shape[1], shape[0]), self._image.Resampling.BILINEAR)
            array = np.asarray(found)
        return array[..., None] if array.ndim == 2 else array

    def identity(self) -> Any:
        """See `Rows.identity`: names and sizes of files."""
        return [[f"{file.parent.name}/{file.name}", file.stat().st_size] for file, _ in self._files]


def image_classes(path: Path) -> list[Path]:
    """Return the folders of images in a folder, one for each class."""
    if not path.is_dir():
        return []
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    return [folder for folder in folders if any(file.suffix.lower() in _IMAGES for file in folder.iterdir())]


class HubRows(Rows):
    """Rows of a data set of the Hugging Face Hub, as ``datasets`` loads it.

    Args:
      address: ``hf://datasets/NAME``, with ``?split=test`` and ``&config=NAME`` after it. The split is ``train`` by
        default. NAME may be a local folder that ``datasets`` reads.
      label: the column of classes, for their names.

    Raises:
      DataError: ``datasets`` cannot load it, or a column is text.
      MissingLibraryError: ``datasets`` is not installed.
    """

    def __init__(self, address: str, label: str = "y"):
        name, _, query = address.removeprefix(HUB).partition("?")
        given = dict(urllib.parse.parse_qsl(query))
        if not name or not given.keys() <= {"split", "config"}:
            raise DataError(f"{address}: an address is {HUB}NAME, with ?split=SPLIT and &config=CONFIG after it.")
        try:
            datasets: Any = importlib.import_module("datasets")
        except ImportError as error:
            raise MissingLibraryError(
                f"data sets of the Hub need datasets: pip install 'tf2jax-lite[datasets]' ({error})"
            ) from error
        self._address, self._split = address, given.get("split", "train")
        with reading(address, DataError):
            found = datasets.load_dataset(name, given.get("config"), split=self._split)
        self._rows = found.with_format("numpy")
        self.classes = list(getattr(found.features.get(label), "names", None) or ())
        for column, feature in found.features.items():
            if getattr(feature, "dtype", "") in ("string", "large_string", "binary"):
                raise DataError(
                    f"{address}: the column {column!r} is text, and a model takes numbers. Encode it first."
                )

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Example:
        with reading(f"{self._address}, row {index}", DataError):
            return {name: np.asarray(value) for name, value in self._rows[index].items()}

    def identity(self) -> Any:
        """See `Rows.identity`: the address, and the fingerprint of the data."""
        return [self._address, len(self), getattr(self._rows, "_fingerprint", "")]
