"""Answers as files for spreadsheets: CSV and XLSX, with numbers and names as people type them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, Any

from treeproof.errors import InvalidInput, printable, require_backend
from treeproof.files import replacing
from treeproof.results.numbers import plainly
from treeproof.results.results import Results
from treeproof.results.run_file import TABLE_ENDINGS
from treeproof.results.table import CHANGED, answer_columns, changed_axes

_TYPED_DIGITS = 15
"""Digits of a number that spreadsheets keep of what is typed in."""
_WIDEST, _NARROWEST = 60, 8
"""Width of a column of a spreadsheet, in characters."""
_MOST_COLUMNS, _MOST_LINES = 16_384, 1_048_576
"""Size of a spreadsheet."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

Blocks = Callable[[], Iterable[Results]]
"""Answers block by block, as often as they are asked for."""


def is_table(path: str | PathLike[str]) -> bool:
    """Whether the ending of a file says that it is for a spreadsheet."""
    return Path(path).suffix.lower() in TABLE_ENDINGS


def save_table(path: str | PathLike[str], blocks: Blocks) -> None:
    """Write answers into a CSV or XLSX file, in one step: a line per row, or per changed row."""
    with replacing(path, "The table") as file:
        if Path(path).suffix.lower() == ".csv":
            # Without its mark, Excel takes UTF-8 for an old code page.
            file.write(b"\xef\xbb\xbf")
            for text in csv_texts(blocks):
                file.write(text.encode("utf-8", "backslashreplace"))
        else:
            _write_xlsx(file, blocks)


def csv_texts(blocks: Blocks) -> Iterator[str]:
    """Answers as comma-separated values, one text for each block; no number or text is empty."""
    names, lines = _table(blocks)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_safe(name) for name in names])
    for block in lines:
        writer.writerows([_csv_cell(cell) for cell in line] for line in block)
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _table(blocks: Blocks) -> tuple[list[str], Iterator[Iterator[tuple[Any, ...]]]]:
    """Names of the columns of all blocks, and the lines of each block."""
    axes = sorted(set().union(*(changed_axes(block) for block in blocks())))
    columns = [answer_columns(block, changes=True, axes=axes).keys() for block in blocks()]
    names = _in_common_order(columns)

    def lines() -> Iterator[Iterator[tuple[Any, ...]]]:
        for block in blocks():
            found = answer_columns(block, changes=True, axes=axes)
            nothing = [None] * len(block)
            cells = (found.get(name, nothing) for name in names)
            plain = (c.tolist() if hasattr(c, "tolist") else c for c in cells)
            yield zip(*plain, strict=True)

    return names, lines()


def _in_common_order(found: Sequence[Iterable[str]]) -> list[str]:
    """All names, each after those that stand before it where it occurs."""
    names: list[str] = []
    for block in found:
        place = 0
        for name in block:
            if name in names:
                place = names.index(name) + 1
            else:
                names.insert(place, name)
                place += 1
    return names


def _csv_cell(cell: Any) -> Any:
    if isinstance(cell, float):
        return "" if math.isnan(cell) else plainly(cell)
    return _safe(cell) if isinstance(cell, str) else cell


def _safe(text: str) -> str:
    """A text that no spreadsheet takes for a formula: names come from data that may be hostile."""
    text = printable(text)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _write_xlsx(file: IO[bytes], blocks: Blocks) -> None:
    require_backend("openpyxl", "excel")
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Font
    from openpyxl.utils import get_column_letter

    names, lines = _table(blocks)
    is_typed = [name.endswith(CHANGED) for name in names]
    written = [
        [_xlsx_cell(*cell) for cell in zip(line, is_typed, strict=True)]
        for block in lines
        for line in block
    ]
    if len(names) > _MOST_COLUMNS or len(written) >= _MOST_LINES:
        raise InvalidInput(
            f"A spreadsheet has at most {_MOST_COLUMNS:,} columns and {_MOST_LINES:,} lines. Got"
            f" {len(names):,} and {len(written) + 1:,}. Write a .csv, or choose rows with --only."
        )
    book = Workbook(write_only=True)
    sheet = book.create_sheet("answers")
    for number, name in enumerate(names, start=1):
        longest = max((len(str(line[number - 1][0])) for line in written), default=0)
        width = min(max(len(name), longest, _NARROWEST), _WIDEST)
        sheet.column_dimensions[get_column_letter(number)].width = width + 2
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = f"A1:{get_column_letter(len(names))}{len(written) + 1}"

    def cell(value: Any, style: str = "General", *, is_bold: bool = False) -> Any:
        made = WriteOnlyCell(sheet)
        if isinstance(value, str):
            # Set so, since a text that begins with = would be taken for a formula.
            made._value, made.data_type = printable(value), "s"
        else:
            made.value, made.number_format = value, style
        if is_bold:
            made.font = Font(bold=True)
        return made

    sheet.append([cell(name, is_bold=True) for name in names])
    for line in written:
        sheet.append([cell(value, style) for value, style in line])
    book.save(file)


def _xlsx_cell(value: Any, is_typed: bool) -> tuple[Any, str]:
    """A value, and the format of its cell; what is typed in is shown with all of its digits.

    Numbers that have more of them than spreadsheets keep, and what is no number there, are texts.
    """
    if not isinstance(value, float):
        return value, "General"
    if math.isnan(value):
        return None, "General"
    text = plainly(value)
    if math.isinf(value):
        return text, "General"
    if not is_typed:
        return value, "General"
    digits = text.lstrip("-0.").partition("e")[0].replace(".", "")
    if len(digits) > _TYPED_DIGITS:
        return text, "General"
    decimals = len(text.partition(".")[2])
    if "e" in text:
        return value, "0.###############E+00"
    return value, f"0.{'0' * decimals}" if decimals else "0"
