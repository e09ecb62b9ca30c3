"""A run and its gate as platforms show them: JUnit XML for test results, Markdown for summaries."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from treeproof.cli.run_output import ROWS_SHOWN
from treeproof.errors import printable

if TYPE_CHECKING:
    from treeproof.cli.gate import GateResult
    from treeproof.runs.runner import Run, Runner


class Found(NamedTuple):
    """A run, what is said of it, and what its gate says, where there is one."""

    run: "Run"
    runner: "Runner"
    lines: Sequence[str]
    gate: "GateResult | None"
    strict: bool

    @property
    def checks(self) -> list[tuple[str, str, str]]:
        """What was checked: its name, why it fails, and what is said about it."""
        tally, asked = self.run.tally, self.runner.header["question"]["kind"]
        cases = []
        if self.gate is not None:
            shares = []
            if self.gate.fail_under is not None:
                shares.append(f"at least {100.0 * self.gate.fail_under:.6g} % of rows")
            if self.gate.before is not None:
                shares.append(f"no less than in {self.gate.before['run']}")
            words = " and ".join(shares)
            cases.append((f"verified: {words}", self.gate.failure, "; ".join(self.gate.lines())))
        n_open = tally.verdicts["unknown"]
        why = f"{n_open} of {tally.n_rows} rows are undecided" if self.strict and n_open else ""
        if not self.run.is_complete:
            why = f"interrupted after {tally.n_rows} rows"
        cases.append((f"every row is answered ({asked})", why, "; ".join(self.lines)))
        return cases


def junit(found: Found) -> str:
    """The gate and the run as test cases, in the form that build servers read."""
    cases = found.checks
    seconds = f"{found.run.tally.seconds.total:.6f}"
    failures = str(sum(bool(failure) for _, failure, _ in cases))
    totals = {"tests": str(len(cases)), "failures": failures, "errors": "0", "time": seconds}
    root = ElementTree.Element("testsuites", {"name": "treeproof"} | totals)
    suite = ElementTree.SubElement(root, "testsuite", {"name": _asked(found)} | totals)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _facts(found):
        ElementTree.SubElement(properties, "property", {"name": name, "value": printable(value)})
    for number, (name, failure, said) in enumerate(cases):
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {
                "classname": "treeproof",
                "name": printable(name),
                "time": seconds if number == len(cases) - 1 else "0",
            },
        )
        if failure:
            ElementTree.SubElement(
                case, "failure", {"message": printable(failure)}
            ).text = printable(f"{failure}\n{said}")
        ElementTree.SubElement(case, "system-out").text = printable(said)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def markdown(found: Found) -> str:
    """The gate, the summary and the first rows, as a page of a build server shows them."""
    checks = found.checks
    lines = [f"## {_mark(any(why for _, why, _ in checks))} {_escaped(_asked(found))}", ""]
    for name, failure, said in checks:
        lines.append(f"* {_mark(bool(failure))} **{_escaped(name)}**: {_escaped(failure or said)}")
    if found.gate is not None and found.gate.failure:
        lines += [f"  * {_escaped(line)}" for line in found.gate.lines()]
    lines += ["", "| | |", "|---|---|"]
    lines += [f"| {_escaped(name)} | {_escaped(value)} |" for name, value in _facts(found)]
    table = _rows(found)
    if table:
        lines += ["", "<details><summary>Rows</summary>", "", *table, "", "</details>"]
    return "\n".join(lines)


def _mark(is_failed: bool) -> str:
    return "❌" if is_failed else "✅"


def _rows(found: Found) -> list[str]:
    """The first rows that are not verified, as a table."""
    records = found.runner.records(lambda record: record["verdict"] != "verified")
    blocks = list(itertools.islice(records, ROWS_SHOWN))
    if not blocks:
        return []
    from treeproof.results.run_file import table_of

    answers = table_of(found.runner.header, blocks)
    lines = ["| row | answer |", "|---|---|"]
    for answer in answers:
        name, _, said = str(answer).removeprefix("row ").partition(": ")
        lines.append(f"| {_escaped(name)} | {_escaped(said)} |")
    return lines


def _asked(found: Found) -> str:
    return f"treeproof {found.runner.header['question']['kind']}"


def _facts(found: Found) -> list[tuple[str, str]]:
    """By what the model, the data and the tool are known."""
    header, tally = found.runner.header, found.run.tally
    model, data = header["model"], header.get("data") or {}
    facts = [
        ("model", str(model.get("source") or model.get("library") or "")),
        ("fingerprint", str(model.get("fingerprint") or "")),
        ("data", str(data.get("file") or "")),
        (
            "rows",
            f"{tally.n_rows:,}, of which {tally.n_attacked:,} are attacked",
        ),
        ("treeproof", str(header.get("versions", {}).get("treeproof", ""))),
    ]
    return [(name, value) for name, value in facts if value]


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    text = printable(text).replace("\n", " ").replace("&", "&amp;").replace("<", "&lt;")
    for character in "\\`*_|[]":
        text = text.replace(character, "\\" + character)
    return text
