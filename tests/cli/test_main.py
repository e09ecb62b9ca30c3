import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import Result

import treeproof
from treeproof.cli import main as cli_main
from treeproof.cli.options import Command
from treeproof.errors import TreeproofError, printable

Run = Callable[..., Result]
NOT_COMMANDS = {"__init__", "main", "console", "options"}


def test_help_lists_every_command(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name, line in cli_main.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(line)}$", result.stdout, re.MULTILINE)


def test_every_command_file_is_listed_and_explains_itself() -> None:
    folder = Path(cli_main.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - NOT_COMMANDS
    files = {name for name in files if hasattr(import_module(f"treeproof.cli.{name}"), "command")}
    assert files == set(cli_main.COMMANDS)
    for name in cli_main.COMMANDS:
        command: Command = import_module(f"treeproof.cli.{name}").command
        assert command.help
        assert command.example.startswith(f"treeproof {name}")
        command.make_context(name, shlex.split(command.example)[2:])  # as it may be typed
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts}"


@pytest.mark.parametrize("name", cli_main.COMMANDS)
def test_every_command_has_help(run: Run, name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: treeproof {name} ")
    assert re.search(rf"\n\nExample:\n  \$ treeproof {name}[^\n]*\n$", result.stdout)


def test_help_shows_options_by_subject(run: Run) -> None:
    text = run("radius", "--help").stdout
    titles = ["Options", "Rows", "Threat model", "Engine and limits", "Output", "Loading the model"]
    assert re.findall(r"^([A-Z][\w ]+):$", text, re.MULTILINE) == [*titles, "Example"]
    sections = dict(
        zip(titles, re.split(r"^[A-Z][\w ]+:$", text, flags=re.MULTILINE)[1:], strict=False)
    )
    assert re.findall(r"^  (--[\w-]+)", sections["Output"], re.MULTILINE) == [
        *("--out", "--format", "--all-rows", "--strict", "--resume", "--evidence"),
        *("--only", "--sort", "--log-file"),
    ]
    assert "--help" in sections["Options"]
    assert "[default: exact]" in sections["Engine and limits"]


def test_help_imports_nothing_heavy() -> None:
    # The promise is a start within 0.3 s; a test by the clock would fail on a busy machine.
    program = (
        "import sys; from treeproof.cli.main import main; main(['--help'], standalone_mode=False);"
        "heavy = {'numpy', 'numba', 'rich', 'msgspec', 'narwhals', 'sklearn', 'pandas'};"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_version(run: Run) -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"treeproof, version {treeproof.__version__}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["inspct"], "No such command 'inspct'. Did you mean 'inspect'?"),
        (["xyzzy"], "No such command 'xyzzy'."),
        (["inspect"], "Missing argument 'MODEL'."),
        (["inspect", "--colour"], "No such option"),
        (["inspect", "m", "--decision-threshold", "high"], "'high' is not a valid float"),
        (["inspect", "m", "--n-classes", "0"], "0 is not in the range"),
        (["inspect", "m", "--tie", "left"], "'left' is not one of"),
        (["convert", "m"], "Missing argument 'OUT'."),
        (["demo", "fast"], "unexpected extra argument"),
    ],
)
def test_wrong_use_exits_with_2(run: Run, words: list[str], sentence: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sentence in result.stderr


def test_errors_are_one_sentence_on_standard_error(run: Run, tmp_path: Path) -> None:
    result = run("inspect", tmp_path / "absent.json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert re.fullmatch(r"treeproof: error: .*absent\.json.*\.\n", result.stderr)


def test_errors_cannot_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    result = run("inspect", tmp_path / "a\x1b[31mb")
    assert "\x1b" not in result.stderr
    assert "\\x1b[31mb" in result.stderr


def test_bugs_keep_their_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("treeproof.api.load", broken)
    monkeypatch.setitem(treeproof.__dict__, "load", broken)
    with pytest.raises(ZeroDivisionError):
        run("inspect", "model.json")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, größer, 木, 😀", "plain, größer, 木, 😀"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[2J\x07\x7f\r", "\\x1b[2J\\x07\\x7f\\r"),
        ("\u202eabc\u200b", "\\u202eabc\\u200b"),
        ("\ud800", "\\ud800"),
    ],
)
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_the_installed_command_runs(saved_model: Path) -> None:
    program = Path(sys.executable).with_name("treeproof")
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [program, "inspect", saved_model],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "spam" in done.stdout
    assert done.stderr == ""
    wrong = subprocess.run(
        [program, "inspect", saved_model.parent], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("treeproof: error: ")
    assert "Traceback" not in wrong.stderr


def test_every_error_of_the_library_becomes_a_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import treeproof.errors

    kinds = [
        kind
        for kind in vars(treeproof.errors).values()
        if isinstance(kind, type) and issubclass(kind, TreeproofError)
    ]
    assert len(kinds) >= 8
    for kind in kinds:

        def refuse(*_: object, _kind: type[TreeproofError] = kind, **__: object) -> None:
            raise _kind("This is the rule. Got that.")

        monkeypatch.setitem(treeproof.__dict__, "load", refuse)
        result = run("inspect", "model.json")
        assert result.exit_code == 2
        assert result.stderr == "treeproof: error: This is the rule. Got that.\n"
