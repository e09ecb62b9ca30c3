import gzip
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.model.test_rows import NAMES, ensemble
from treeproof.data import readers
from treeproof.data.readers import ReadOptions, open_data, parse_rows
from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble
from treeproof.model.rows import label_numbers

N_ROWS = 23
RNG = np.random.default_rng(0)
VALUES = np.round(RNG.normal(size=(N_ROWS, 3)), 3)
VALUES[4, 1] = np.nan
LABELS = RNG.integers(0, 2, N_ROWS)
KINDS = [
    *("data.csv", "data.tsv", "data.parquet", "data.npz", "data.npy", "data.libsvm"),
    *("data.jsonl", "data.feather", "data.arrow", "data.csv.gz", "data.jsonl.gz", "data.svm.gz"),
]


def model(**changes: Any) -> Ensemble:
    return ensemble(feature_names=NAMES, **changes)


def written(folder: Path, name: str) -> Path:
    """The same rows in a file of each kind."""
    path = folder / name
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(written(folder, path.stem).read_bytes()))
        return path
    frame = pd.DataFrame(VALUES, columns=list(NAMES)).assign(target=LABELS)
    match path.suffix:
        case ".csv":
            frame.to_csv(path, index=False)
        case ".tsv":
            frame.to_csv(path, index=False, sep="\t")
        case ".parquet":
            frame.to_parquet(path, row_group_size=5)
        case ".npz":
            np.savez_compressed(path, X=VALUES, y=LABELS, feature_names=np.array(NAMES))
        case ".npy":
            np.save(path, VALUES)
        case ".jsonl":
            frame.to_json(path, orient="records", lines=True)
        case ".feather":
            frame.to_feather(path, chunksize=5)
        case ".arrow":
            table = pa.Table.from_pandas(frame)
            with pa.ipc.new_file(path, table.schema) as file:
                file.write_table(table, max_chunksize=7)
        case ".libsvm" | ".svm":
            lines = [
                f"{label} " + " ".join(f"{i + 1}:{v!r}" for i, v in enumerate(row.tolist()))
                for label, row in zip(LABELS, VALUES, strict=True)
            ]
            path.write_text("# a comment\n\n" + "\n".join(lines) + "\n")
    return path


def label_of(name: str) -> str | None:
    has_names = ("csv", "tsv", "parquet", "jsonl", "feather", "arrow")
    return "target" if name.removesuffix(".gz").endswith(has_names) else None


def read(path: Path, options: ReadOptions, **changes: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """All rows and labels, with a check that chunks follow each other."""
    matrices, labels, row = [np.zeros((0, 3))], [], options.first_row
    for chunk in open_data(path, options).chunks():
        assert chunk.first_row == row
        matrices.append(chunk.matrix(model(**changes)))
        if chunk.labels is not None:
            found = label_numbers(model(**changes), chunk.labels, n_rows=len(matrices[-1]))
            labels.append(found)
        row += len(matrices[-1])
    return np.concatenate(matrices), np.concatenate(labels) if labels else None


@pytest.mark.parametrize("name", KINDS)
@given(
    first=st.integers(0, N_ROWS + 3),
    length=st.none() | st.integers(0, N_ROWS + 3),
    chunk_rows=st.none() | st.integers(1, N_ROWS + 1),
)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_range_in_any_chunks_gives_its_rows(
    tmp_path: Path, name: str, first: int, length: int | None, chunk_rows: int | None
) -> None:
    path = tmp_path / name
    if not path.exists():
        written(tmp_path, name)
    rows = slice(first, None if length is None else first + length)
    options = ReadOptions(label=label_of(name), rows=rows)
    cells = readers.CELLS_PER_CHUNK if chunk_rows is None else 4 * chunk_rows
    with mock.patch.object(readers, "CELLS_PER_CHUNK", cells):
        matrix, labels = read(path, options)
    np.testing.assert_array_equal(matrix, VALUES[rows])
    if len(matrix) and not name.endswith("npy"):
        np.testing.assert_array_equal(labels, LABELS[rows])
    n_rows = open_data(path, options).n_rows
    assert n_rows is None or n_rows == len(matrix)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_can_be_read_again_and_by_its_content_alone(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    data = open_data(path, ReadOptions(label=label_of(name)))
    assert data.has_labels == (not name.endswith("npy"))
    assert data.columns == (() if name.endswith(("npy", "libsvm", "svm.gz")) else NAMES)
    assert [c.first_row for c in data.chunks()] == [c.first_row for c in data.chunks()]
    nameless = path.rename(tmp_path / "data")
    np.testing.assert_array_equal(read(nameless, ReadOptions(label=label_of(name)))[0], VALUES)


def test_columns_are_matched_by_name_in_every_kind_that_has_names(tmp_path: Path) -> None:
    order = [2, 0, 1]
    names = [NAMES[i] for i in order]
    frame = pd.DataFrame(VALUES[:, order], columns=names)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", X=VALUES[:, order], feature_names=np.array(names))
    for name in ("a.csv", "a.parquet", "a.npz"):
        np.testing.assert_array_equal(read(tmp_path / name, ReadOptions())[0], VALUES)


def test_headers_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for content, n_rows in (("0,1,2\n5,6,7\n", 1), ("5,6,7\n8,9,10\n", 2), ("a,b,c\n1,2,3\n", 1)):
        path.write_text(content)
        rows = [chunk.matrix(ensemble()) for chunk in open_data(path).chunks()]
        assert sum(map(len, rows)) == n_rows
    path.write_text("5,6,7,1\n8,9,10,0\n")
    _, labels = read(path, ReadOptions(label="3"))
    assert labels is not None
    assert labels.tolist() == [1, 0]


def test_text_details(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        '\ufeffage;"income";colour\r\n1;"2,5";3\r\n\r\n4;"";6\r\n'.replace(",", ".").encode()
    )
    np.testing.assert_array_equal(read(path, ReadOptions())[0], [[1, 2.5, 3], [4, np.nan, 6]])
    path.write_text('"a\nb",income,colour\n\n1,2,3\n')  # a name of two lines, and a blank line
    assert open_data(path).columns == ("a\nb", "income", "colour")
    assert [len(chunk) for chunk in open_data(path).chunks()] == [1]


def test_categories_in_text_and_parquet(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0], "income": [0.0, 0.0], "colour": ["blue", "red"]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.astype({"colour": "category"}).to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        matrix, _ = read(
            tmp_path / name, ReadOptions(), categorical=True, categories={2: ("red", "blue")}
        )
        assert matrix[:, 2].tolist() == [1.0, 0.0]


def test_libsvm_conventions(tmp_path: Path) -> None:
    path = tmp_path / "a.libsvm"
    path.write_text("+1 qid:3 1:5 3:7 # note\n0 2:1e-3\n")
    matrix, labels = read(path, ReadOptions())
    np.testing.assert_array_equal(matrix, [[5, 0, 7], [0, 1e-3, 0]])
    assert labels is not None
    assert labels.tolist() == [1, 0]
    missing, _ = read(path, ReadOptions(absent="missing"))
    np.testing.assert_array_equal(missing, [[5, np.nan, 7], [np.nan, 1e-3, np.nan]])
    path.write_text("1 0:5 2:7\n")
    zero_based, _ = read(path, ReadOptions(first_index=0))
    np.testing.assert_array_equal(zero_based, [[5, 0, 7]])
    wide = next(iter(open_data(path, ReadOptions(first_index=0, n_features=5)).chunks()))
    assert wide.values.shape == (1, 5)


def test_arrays_of_other_names_orders_and_shapes(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, X=np.asfortranarray(VALUES), y_test=LABELS[:, None])
    matrix, labels = read(path, ReadOptions(label="y_test", rows=slice(3, 9)))
    np.testing.assert_array_equal(matrix, VALUES[3:9])
    np.testing.assert_array_equal(labels, LABELS[3:9])
    np.save(tmp_path / "a.npy", VALUES.astype(">f4"))
    matrix, _ = read(tmp_path / "a.npy", ReadOptions())
    np.testing.assert_array_equal(matrix, VALUES.astype(np.float32).astype(np.float64))


def test_pandas_indices_in_parquet_are_no_features(tmp_path: Path) -> None:
    frame = pd.DataFrame(VALUES, columns=list(NAMES), index=np.arange(N_ROWS)[::-1])
    frame.to_parquet(tmp_path / "a.parquet")
    assert open_data(tmp_path / "a.parquet").columns == NAMES


def test_memory_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "CELLS_PER_CHUNK", 3000)
    path = tmp_path / "big.npz"
    np.savez_compressed(path, X=np.zeros((300_000, 3)))  # 7 MB, and more as rows of texts
    csv_path = tmp_path / "big.csv"
    csv_path.write_text("age,income,colour\n" + "1.5,2.5,0\n" * 60_000)
    for big in (path, csv_path):
        tracemalloc.start()
        try:
            n_rows = sum(len(c.matrix(model())) for c in open_data(big).chunks())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert n_rows >= 60_000
        assert peak < 4 * 2**20


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("0:500", slice(0, 500)),
        (":20", slice(0, 20)),
        ("7:", slice(7, None)),
        (":", slice(0, None)),
    ],
)
def test_row_ranges(text: str, rows: slice) -> None:
    assert parse_rows(text) == rows


@pytest.mark.parametrize("text", ["5", "a:b", "-1:3", "3:1", "0:10:2", ""])
def test_wrong_row_ranges(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"[Rr]ow"):
        parse_rows(text)


@pytest.mark.parametrize(
    ("name", "content", "options", "sentence"),
    [
        ("absent.csv", None, {}, "cannot be read: No such file"),
        ("a.csv", b"", {}, "is empty"),
        ("a.csv", b"\n1,2\n", {}, "Got an empty line"),
        ("a.csv", b"a,a\n1,2\n", {}, "must be unique"),
        ("a.csv", b"a,b,c\n1,2,3\n1,2\n", {}, r"3 cells\. Got 2 in row 1"),
        ("a.csv", b"a,b,c\n1,\xff,3\n", {}, "must be UTF-8"),
        ("a.csv", b"age,target\n1,2\n", {"label": "tarquet"}, "Did you mean 'target'"),
        ("a.csv", b"age,income,colour\n1,2,x\n", {}, "'colour' must hold numbers"),
        ("a.libsvm", b"1 1:2 x\n", {}, r"Line 1 .*'label index:value ...'.*Got 'x'"),
        ("a.libsvm", b"1 1:2:3\n", {}, "Got '1:2:3'"),
        ("a.libsvm", b"1 0:2\n", {}, "Say --first-column 0"),
        ("a.libsvm", b"1 -3:2\n", {}, "Got '-3:2'"),
        ("a.libsvm", b"1 4:2\n", {"n_features": 3}, "at most 3 columns.*Got column 4"),
        ("a.libsvm", b"1 1:2\n", {"label": "y"}, "JSON lines, Parquet, Arrow and NPZ files only"),
        ("a.parquet", b"PAR1 and nothing more", {}, "cannot be read"),
        ("a.arrow", b"ARROW1 and nothing more", {}, "cannot be read"),
        ("a.feather", b"FEA1 and nothing more", {}, "version 1 of Feather"),
        ("a.csv.gz", gzip.compress(b"PAR1", mtime=0), {}, "Only text may be compressed.*gunzip"),
        (
            "a.csv.gz",
            gzip.compress(b"age,income,colour\n1,2,3\n", mtime=0)[:-9],
            {},
            "cannot be read",
        ),
        ("a.jsonl", b'{"age": 1}\n{"age": [1]}\n', {}, "Line 2 .*must be a JSON object of numbers"),
        ("a.jsonl", b'{"age": 1}\n{"income": 1}\n', {}, "Line 2 lacks one: 'age'"),
        ("a.jsonl", b'{"age": 1}\n{"age": 1, "x": 2}\n', {}, "Line 2 has another: 'x'"),
        ("a.jsonl", b'{"age": 1}\nnonsense\n', {}, "Line 2 .*must be a JSON object"),
        ("a.jsonl", b"\n\n", {}, "must be a JSON object. Got none"),
        ("a.xlsx", b"PK\x03\x04", {}, "spreadsheet .*saved as CSV or Parquet first"),
        ("a.csv", b"age,income,colour\n1,2,3\n", {"id": "agee"}, "Did you mean 'age'?"),
        ("a.parquet", b"a,b,c\n1,2,3\n", {}, "not of the kind that its ending says"),
        ("a.npz", b"PK\x03\x04 and nothing more", {}, "cannot be read"),
        ("a.npy", b"\x93NUMPY\x01\x00", {}, "cannot be read"),
    ],
)
def test_wrong_files_get_a_sentence(
    tmp_path: Path, name: str, content: bytes | None, options: dict[str, Any], sentence: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=sentence):
        read(tmp_path / name, ReadOptions(**options))


@pytest.mark.parametrize(
    ("arrays", "options", "sentence"),
    [
        ({"Z": VALUES}, {}, "has no 'X'"),
        ({"X": VALUES[0]}, {}, "must be a matrix of numbers"),
        ({"X": VALUES.astype(str)}, {}, "must be a matrix of numbers"),
        ({"X": VALUES, "y": LABELS[1:]}, {}, "one entry per row"),
        ({"X": VALUES}, {"label": "y"}, "has no 'y'"),
        ({"X": VALUES, "feature_names": np.array(["a"])}, {}, "one string per column"),
    ],
)
def test_wrong_arrays_get_a_sentence(
    tmp_path: Path, arrays: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InvalidInput, match=sentence):
        open_data(tmp_path / "a.npz", ReadOptions(**options))


def test_pickled_arrays_are_never_opened(tmp_path: Path) -> None:
    harmful = np.array([object()], dtype=object)
    np.save(tmp_path / "a.npy", harmful, allow_pickle=True)
    with pytest.raises(InvalidInput, match="cannot be read"):
        open_data(tmp_path / "a.npy")
    np.savez(tmp_path / "a.npz", X=VALUES, y=harmful.repeat(N_ROWS))
    with pytest.raises(InvalidInput, match="cannot be read"):
        open_data(tmp_path / "a.npz")


def test_a_file_that_is_cut_off_is_noticed(tmp_path: Path) -> None:
    whole = written(tmp_path, "data.npz")
    with zipfile.ZipFile(whole) as archive:
        content = archive.read("X.npy")
    with zipfile.ZipFile(tmp_path / "cut.npz", "w") as archive:
        archive.writestr("X.npy", content[:-8])
    with pytest.raises(InvalidInput, match="cut off"):
        read(tmp_path / "cut.npz", ReadOptions())


def test_a_file_that_vanishes_gets_a_sentence(tmp_path: Path) -> None:
    path = written(tmp_path, "data.csv")
    data = open_data(path)
    path.unlink()
    with pytest.raises(InvalidInput, match="No such file"):
        list(data.chunks())


def test_damaged_parquet_pages_get_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({name: VALUES[:, i] for i, name in enumerate(NAMES)}), path)
    content = bytearray(path.read_bytes())
    content[4:60] = bytes(56)
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(path, ReadOptions())


def test_texts_of_json_are_texts_and_null_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"age": 1, "income": null, "colour": "NA", "target": 0, "id": "x"}\n\n'
        '{"colour": "red", "age": 2.5, "income": true, "target": 1, "id": 7}\n'
    )
    categories = {2: ("red", "NA")}
    (chunk,) = open_data(path, ReadOptions(label="target", id="id")).chunks()
    matrix = chunk.matrix(model(categories=categories, categorical=(2,)))
    np.testing.assert_array_equal(matrix, [[1.0, np.nan, 1.0], [2.5, 1.0, 0.0]])
    assert chunk.labels.tolist() == [0, 1]
    assert chunk.ids.tolist() == ["x", 7]


@pytest.mark.parametrize("name", ["data.csv", "data.parquet", "data.jsonl", "data.feather"])
def test_identifiers_are_no_features(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    chunks = open_data(path, ReadOptions(label="target", id="age")).chunks()
    ids = [float(value) for chunk in chunks for value in chunk.ids]
    np.testing.assert_array_equal(ids, VALUES[:, 0])
    assert open_data(path, ReadOptions(id="age")).columns == ("income", "colour", "target")
