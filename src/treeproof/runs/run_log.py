"""A run file that grows: every append is on disk when it returns.

A process may be killed at any moment. What it leaves is a header, whole lines, and perhaps the torn
beginning of one more line, which readers leave out and the next writer cuts off.
"""

import contextlib
import hashlib
import itertools
import math
import operator
import os
import re
import shutil
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.data.sources import Rows
from treeproof.errors import InvalidInput
from treeproof.files import exclusive, replacing, unwritable
from treeproof.prediction import Model
from treeproof.query.description import plain
from treeproof.query.perturbations import Box, PerRow, with_limit
from treeproof.results.compared import differing_part
from treeproof.results.results import Results
from treeproof.results.run_file import (
    AS_FINISHED,
    COMPLETE,
    UNDERWAY,
    check_header,
    read_records,
    row_records,
    table_of,
)
from treeproof.results.summary import RunSummary
from treeproof.results.threat import own_limit
from treeproof.search.question import Question

Record = dict[str, Any]

_BLOCK = 4096
_STATE = re.compile(rb'"state":"\w{8}"(?:,"n_rows": *\d+)?')


def about(question: Question, rows: Rows) -> Question:
    """The question with the radii or budgets of some rows, where each has its own."""
    ball = question.perturbation
    if isinstance(ball, Box) or not isinstance(ball.eps, PerRow):
        return question
    return replace(question, perturbation=with_limit(ball, replace(ball.eps, values=rows.eps)))


def run_header(question: Question, model: Model, rows: Rows) -> dict[str, Any]:
    """Header of a run; the rows are only looked at."""
    header = about(question, rows).unanswered(model, rows.values, rows.labels).header
    limits = {
        "time_limit_s": None if math.isinf(question.time_limit_s) else float(question.time_limit_s),
        "node_limit": None if question.node_limit >= 2**62 else int(question.node_limit),
        "memory_limit_mb": float(question.memory_limit_mb),
    }
    asked: dict[str, Any] = {"question": header["question"], "limits": limits}
    if question.evidence:
        asked["evidence"] = True
    text = msgspec.json.encode(asked, order="sorted")
    return header | {
        "limits": limits,
        "question_hash": hashlib.sha256(text).hexdigest(),
        "order": AS_FINISHED,
        "state": UNDERWAY,
    }


def row_keys(header: dict[str, Any], rows: Rows) -> NDArray[np.uint64]:
    """Key of each row in a run: a hash of the model, the question, the values and the label.

    Also of how far it may move, where each row has its own.
    """
    identity = header["model"]["fingerprint"] + header["question_hash"]
    secret = hashlib.sha256(identity.encode()).digest()
    values = (
        np.ascontiguousarray(rows.values, dtype=np.float64) + 0.0
    )  # -0.0 and 0.0 are one number
    values[np.isnan(values)] = np.nan  # and all kinds of NaN one missing entry
    keys, limits = np.empty(len(values), dtype=np.uint64), rows.eps if own_limit(header) else None
    for i in range(len(values)):
        digest = hashlib.blake2b(values[i].tobytes(), digest_size=8, key=secret)
        if rows.labels is not None:
            digest.update(repr(plain(rows.labels[i])).encode())
        if limits is not None:
            digest.update(b" " + repr(float(limits[i])).encode())
        keys[i] = int.from_bytes(digest.digest(), "big")
    return keys


@dataclass(frozen=True, slots=True)
class Answered:
    """Numbers, ascending, and keys of the rows that a run file holds already."""

    row: NDArray[np.int64]
    key: NDArray[np.uint64]

    def missing(
        self, rows: NDArray[np.int64], keys: NDArray[np.uint64], path: Any
    ) -> NDArray[np.bool_]:
        """Which of some rows are not there; rows that have changed since then are refused."""
        if len(self.row) == 0:
            return np.ones(len(rows), dtype=bool)
        place = np.minimum(np.searchsorted(self.row, rows), len(self.row) - 1)
        there = self.row[place] == rows
        changed = there & (self.key[place] != keys)
        if changed.any():
            raise InvalidInput(
                f"Row {rows[changed][0]} of the data must be the one that the run file '{path}'"
                " has an answer for. Got other values or another label. Give another file with"
                " --out, or the data of the first run."
            )
        return ~there


NONE_ANSWERED = Answered(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64))


class RunLog:
    """A run file open for appending; see `open_log`."""

    def __init__(
        self, path: Path, file: IO[bytes], header: dict[str, Any], *, durable: bool
    ) -> None:
        self.path = path
        self.header = header
        self._file = file
        self._durable = durable
        self._encoder = msgspec.json.Encoder()
        self._rows = array("q")
        self._offsets = array("q")

    def append(self, pieces: Sequence[Results], keys: NDArray[np.uint64]) -> None:
        """Write answers; they are on disk when this returns, or none of them is in the file."""
        lines, numbers, lengths = [], [], []
        records = itertools.chain.from_iterable(map(row_records, pieces))
        for record, key in zip(records, keys, strict=True):
            record["key"] = f"{int(key):016x}"
            line = self._encoder.encode(record) + b"\n"
            lines.append(line)
            numbers.append(record["row"])
            lengths.append(len(line))
        end = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(b"".join(lines))
            self._flush(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.truncate(self.path, end)
            raise unwritable(self.path, error) from error
        self.note(numbers, (end + np.cumsum([0, *lengths[:-1]])).tolist())

    def note(self, rows: Sequence[int], offsets: Sequence[int]) -> None:
        """Remember where rows are, for `records`."""
        self._rows.extend(rows)
        self._offsets.extend(offsets)

    def _flush(self, file: IO[bytes]) -> None:
        file.flush()
        if self._durable:
            os.fsync(file.fileno())

    def set_state(self, state: str) -> None:
        """Write over the header whether every row is answered, and how many there are."""
        if state == self.header["state"]:
            return
        n_rows = len(self) if state == COMPLETE else 0
        new = _state_text(state, n_rows)
        try:
            with self.path.open("r+b") as file:
                found = list(_STATE.finditer(file.readline()))
                if not found:
                    return
                file.seek(found[-1].start())
                # A header of another writer may have no room for the number of rows.
                has_room = len(found[-1][0]) == len(new)
                file.write(new if has_room else new.partition(b",")[0])
                self._flush(file)
        except OSError as error:
            raise unwritable(self.path, error) from error
        self.header |= {"state": state, "n_rows": n_rows}

    def records(
        self,
        keep: Callable[[Record], bool] | None = None,
        key: Callable[[Record], Any] | None = None,
    ) -> Iterator[Record]:
        """Records of rows that a function keeps, in the order of a key, then of the rows."""
        places = np.argsort(np.array(self._rows, dtype=np.int64), kind="stable").tolist()
        if keep is not None or key is not None:
            # Records may be larger than memory: only their keys are held.
            chosen = [
                (None if key is None else key(record), place)
                for place, record in zip(places, self._read(places), strict=True)
                if keep is None or keep(record)
            ]
            if key is not None:
                chosen.sort(key=operator.itemgetter(0))
            places = [place for _, place in chosen]
        return self._read(places)

    def read(self, rows: Sequence[int]) -> list[Record]:
        """Records of those of some rows that are in the file."""
        places = np.flatnonzero(np.isin(np.array(self._rows, dtype=np.int64), list(rows)))
        return list(self._read(places.tolist()))

    def _read(self, places: Sequence[int]) -> Iterator[Record]:
        with self.path.open("rb") as file:
            for place in places:
                file.seek(self._offsets[place])
                yield msgspec.json.decode(file.readline())

    def __len__(self) -> int:
        return len(self._rows)


def _header_line(header: dict[str, Any]) -> bytes:
    # State and number of rows come last, where they can be written over.
    fixed = {name: value for name, value in header.items() if name not in ("state", "n_rows")}
    state = _state_text(header["state"], header.get("n_rows", 0))
    return msgspec.json.encode(fixed)[:-1] + b"," + state + b"}\n"


def write_log(path: Path, header: dict[str, Any], records: Iterable[dict[str, Any]] = ()) -> None:
    """Write a run file that can grow, in one step."""
    with replacing(path) as file:
        file.write(_header_line(header))
        for record in records:
            file.write(msgspec.json.encode(record) + b"\n")


def _state_text(state: str, n_rows: int) -> bytes:
    return b'"state":"%s","n_rows":%15d' % (state.encode(), n_rows)


@contextlib.contextmanager
def open_log(
    path: Path,
    header: dict[str, Any],
    tally: RunSummary,
    *,
    resume: bool = False,
    durable: bool = True,
) -> Iterator[tuple[RunLog, Answered]]:
    """Open a run file for appending; gives it, and the rows that it holds.

    Without `resume` a new one takes the place of a complete one. With it the tally takes in the
    answers that are there, and another model or question is refused. Appends wait for the disk
    where the file is `durable`.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive(path))
            continues = resume and path.exists()
            there = first_record(path) if continues else dict(header)
            if continues:
                check_same(there, header, path)
                there = _asked_of_both(path, there, header)
            else:
                _check_replaceable(path)
                write_log(path, header)
            file = stack.enter_context(path.open("r+b"))
        except TimeoutError as error:
            raise InvalidInput(
                f"The run file '{path}' must have one writer at a time. Another process is writing"
                " it."
            ) from error
        except OSError as error:
            raise unwritable(path, error) from error
        log = RunLog(path, file, there, durable=durable)
        found = NONE_ANSWERED
        if continues:
            found = _scan(log, tally)
            _cut_torn_line(file)
            log.set_state(UNDERWAY)
        yield log, found


def _asked_of_both(path: Path, there: Record, here: Record) -> Record:
    """The header of a run file that is resumed, which tells what both sittings ask about.

    Where that is more than it told, it is written anew, in one step.
    """
    data = joined_data([there.get("data"), here.get("data")])
    if data == there.get("data"):
        return there
    header = there | {"data": data, "state": UNDERWAY, "n_rows": 0}
    with path.open("rb") as old, replacing(path) as new:
        old.readline()
        new.write(_header_line(header))
        shutil.copyfileobj(old, new)
    return header


def joined_data(parts: Sequence[Record | None]) -> Record | None:
    """What a run file says about the data of several: each, and in what all agree."""
    each: list[Record | None] = []
    for part in parts:
        each += [one for one in (part or {}).get("merged") or [part] if one not in each]
    if len(each) == 1:
        return each[0]
    names = ("file", "label", "id", "eps", "first_index", "absent", "by_name")
    known = [{name: (one or {}).get(name) for name in names} for one in each]
    agreed = {
        name: value
        for name, value in known[0].items()
        if value is not None and all(one[name] == value for one in known)
    }
    return agreed | {"merged": each}


def first_record(path: Path) -> dict[str, Any]:
    """Header of a run file."""
    header, _ = next(read_records(path), ({}, 0))
    check_header(header if header.get("record") == "header" else {}, path)
    return header


def _check_replaceable(path: Path) -> None:
    """Refuse to write over what is no run file, or over a run that can be resumed."""
    if not path.exists():
        return
    with path.open("r+b"):  # one that may not be written is not replaced, either
        pass
    if path.stat().st_size == 0:
        return
    try:
        header = first_record(path)
    except InvalidInput as error:
        raise InvalidInput(
            f"The file '{path}' is there already and is no run file. Give another one with --out."
        ) from error
    has_rows = sum(1 for _, _ in zip(read_records(path), range(2), strict=False)) > 1
    if header.get("state") == UNDERWAY and has_rows:
        raise InvalidInput(
            f"The run file '{path}' holds a run that is not complete. Go on with --resume, or"
            " delete it to start anew."
        )


def check_same(there: dict[str, Any], header: dict[str, Any], path: Path) -> None:
    """Refuse the header of a run file that is about another model or question."""
    for name in ("fingerprint", "classes"):
        if there["model"].get(name) != header["model"][name]:
            raise InvalidInput(
                f"The run file '{path}' must be about the same model. Its {name} there:"
                f" {_short(there['model'].get(name))}, here: {_short(header['model'][name])}."
                " Give another file with --out."
            )
    if there.get("question_hash") != header["question_hash"]:
        raise InvalidInput(
            f"The run file '{path}' must be about the same question.{_difference(there, header)}"
            " Give another file with --out, or delete that one: it answers another question."
        )


def _difference(there: dict[str, Any], here: dict[str, Any]) -> str:
    if "question_hash" not in there:
        return " It was not written by a run, and has no keys."
    for part in ("question", "limits"):
        names = set(there.get(part, {})) | set(here[part])
        for name in sorted(names):
            old, new = there.get(part, {}).get(name), here[part].get(name)
            if old != new:
                where, old, new = differing_part(name, old, new)
                return f" Its {where} is {_short(old)} there, and {_short(new)} here."
    return " One of them asks for evidence, the other does not."


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else text[:117] + "..."


def _scan(log: RunLog, tally: RunSummary) -> Answered:
    """Take in the rows of a file: numbers, keys, places, and the summary."""
    rows, keys = array("q"), array("Q")
    block: list[dict[str, Any]] = []
    try:
        for record, offset in read_records(log.path):
            if record["record"] != "row":
                continue
            rows.append(record["row"])
            keys.append(int(record["key"], 16))
            log.note([record["row"]], [offset])
            block.append(record)
            if len(block) == _BLOCK:
                tally.add(table_of(log.header, block))
                block = []
        tally.add(table_of(log.header, block))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"A row record of {log.path} is incomplete: {error}.") from error
    numbers = np.array(rows, dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    return Answered(numbers[order], np.array(keys, dtype=np.uint64)[order])


def _cut_torn_line(file: IO[bytes]) -> None:
    """Cut off what follows the last end of line; a whole record without one is given it."""
    end = file.seek(0, os.SEEK_END)
    start = end
    tail = b""
    while start > 0 and b"\n" not in tail:
        start = max(0, start - 65536)
        file.seek(start)
        tail = file.read(end - start)
    torn = tail[tail.rfind(b"\n") + 1 :]
    if not torn:
        return
    try:
        msgspec.json.decode(torn)
    except (msgspec.DecodeError, UnicodeDecodeError):
        file.truncate(end - len(torn))
    else:
        file.seek(end)
        file.write(b"\n")
    file.flush()
