"""Every snippet of README and docs is executed, every link leads somewhere."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.docs.pages import PAGE_NAMES, ROOT, anchors, blocks, without_blocks
from treeproof.cli.main import COMMANDS, main

KNOWN_LANGUAGES = {"python", "console", ""}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))


def run_console(text: str, where: str) -> None:
    lines = text.splitlines()
    assert all(line.startswith("$ ") for line in lines), f"{where}: only commands are shown"
    for line in lines:
        words = shlex.split(line[2:])
        if words[:2] == ["pip", "install"]:
            continue  # would change this environment
        if words[0] == "make":
            assert set(words[1:]) <= make_targets(), f"{where}: {line}"
            continue
        assert words[0] == "treeproof", f"{where}: {line} cannot be tried here"
        result = CliRunner().invoke(main, words[1:], prog_name="treeproof")
        assert result.exit_code == 0, f"{where}: {line}\n{result.output}"


def test_fenced_blocks_are_of_a_known_kind() -> None:
    found = {(name, block.language) for name in PAGE_NAMES for block in blocks(read(name))}
    assert not {(name, language) for name, language in found if language not in KNOWN_LANGUAGES}


@pytest.mark.parametrize(
    "name", [name for name in PAGE_NAMES if any(block.language for block in blocks(read(name)))]
)
def test_snippets_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "snippet"}
    for block in blocks(read(name)):
        if block.language == "python":
            # Blank lines before it make a traceback name the line of the page.
            padded = "\n" * (block.first_line - 1) + block.text
            exec(compile(padded, name, "exec"), namespace)
        elif block.language == "console":
            run_console(block.text, f"{name}, line {block.first_line}")


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return file.is_file() and (not anchor or anchor in anchors(file.read_text(encoding="utf-8")))


def test_links_lead_somewhere() -> None:
    broken = [
        f"{name}: {target}"
        for name in PAGE_NAMES
        for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(read(name)))
        if not re.match(r"https?:", target) and not leads_somewhere(ROOT / name, target)
    ]
    assert not broken, broken


def test_every_page_of_docs_is_reachable_from_its_index() -> None:
    index = read("docs/index.md")
    for name in PAGE_NAMES:
        if name.startswith("docs/") and name != "docs/index.md":
            assert f"({name.removeprefix('docs/')})" in index


def test_every_command_has_a_section() -> None:
    headings = re.findall(r"^## treeproof (\w+)$", read("docs/reference/cli.md"), re.MULTILINE)
    assert headings == list(COMMANDS)


def test_every_shared_option_is_documented() -> None:
    from treeproof.cli import inspect

    page = read("docs/reference/cli.md")
    for parameter in inspect.command.params:
        for option in parameter.opts:
            if option.startswith("--"):
                assert option in page


@pytest.mark.parametrize(
    ("beginning", "names"),
    [
        ("## Options of every command that loads a model", ("inspect", "convert", "radius")),
        (
            "## Options of every command that asks about rows",
            ("radius", "verify", "attack", "curve", "features"),
        ),
        ("The commands `radius`, `verify`, `attack` and", ("radius", "verify", "attack", "curve")),
    ],
)
def test_options_of_several_commands_are_options_of_each(
    beginning: str, names: tuple[str, ...]
) -> None:
    from importlib import import_module

    table = read("docs/reference/cli.md").partition(beginning)[2].partition("|---|")[2]
    cells = re.findall(r"^\| (`--.*?) \|", table.partition("\n\n")[0], re.MULTILINE)
    listed = set(re.findall(r"--[a-z-]+", " ".join(cells)))
    assert listed
    for name in names:
        command = import_module(f"treeproof.cli.{name}").command
        assert listed <= {option for parameter in command.params for option in parameter.opts}


def test_the_readme_begins_with_installing_a_first_result_and_its_output() -> None:
    install, program, output, *others = blocks(read("README.md"))
    assert install.text.startswith("$ pip install ")
    assert program.language == "python"
    assert output.text.startswith("569 rows: radius exact on 569")
    assert "$ make demo\n$ make test\n" in [block.text for block in others]


def test_the_first_result_takes_at_most_15_lines() -> None:
    first = next(block for block in blocks(read("README.md")) if block.language == "python")
    assert len(first.text.splitlines()) <= 15


def test_the_layout_of_the_model_file_is_documented() -> None:
    from treeproof.model import file_format

    page = read("docs/reference/model-file.md").partition("## What `inspect` shows")[0]
    assert file_format.MAGIC.hex(" ") in page
    assert f"Layout, version {file_format.VERSION}" in page
    listed = re.findall(r"^\| `(\w+)` \| \w+ \|", page, re.MULTILINE)
    assert listed == list(file_format._DTYPES)
    for field in file_format._Header.__struct_fields__:
        assert f"`{field}`" in page


@pytest.mark.parametrize(
    ("page", "package"), [("exact-engine", "kernels"), ("evidence", "checker")]
)
def test_names_in_brackets_are_modules(page: str, package: str) -> None:
    modules = {path.stem for path in (ROOT / "src/treeproof" / package).rglob("*.py")}
    brackets = re.findall(r"\[(`\w+`(?:, `\w+`)*)\]", read(f"docs/explanation/{page}.md"))
    named = {name for bracket in brackets for name in re.findall(r"\w+", bracket)}
    assert len(named) > 3
    assert named <= modules, named - modules


def test_what_evidence_costs_is_what_was_measured() -> None:
    table = read("benchmarks/results/evidence.md")
    rows = re.findall(r"^\| \w+ \((\d+)\) (?:\| [^|]+ ){4}\| ([\d.]+) \|", table, re.MULTILINE)
    said = " ".join(read("docs/explanation/evidence.md").split())
    for is_large in (True, False):
        ratios = [float(ratio) for trees, ratio in rows if (int(trees) >= 50) == is_large]
        assert len(ratios) >= 5
        assert f"{min(ratios):.1f} to {max(ratios):.1f} times" in said


def test_the_comparison_in_the_readme_is_that_of_the_scoreboard():
    board = (ROOT / "benchmarks" / "results" / "scoreboard.md").read_text()
    section = board.partition("## ijcnn_unrobust\n")[2].partition("\n## ")[0]
    kept = {
        (cells[5], cells[6], cells[8])
        for cells in (line.split(" | ") for line in section.splitlines())
        if len(cells) > 8
    }
    readme = (ROOT / "README.md").read_text().partition("## How it compares")[2]
    readme = readme.partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in readme.splitlines() if line.startswith("| ")]
    assert len(lines) > 5
    for tool, *figures in lines[1:]:
        assert tuple(figures) in kept, tool
