"""Entry point of the command line: finds the command, turns errors into sentences.

Commands are imported when they are called, so that ``treeproof --help`` starts at once. To add one:
a file ``cli/<name>.py`` with a click command named `command`, and a line in `COMMANDS`.
"""

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

import treeproof
from treeproof.cli.console import print_error, print_note
from treeproof.errors import ModelWarning, NoEffectWarning, TreeproofError, nearest

EXIT_WRONG_INPUT = 2
EXIT_INTERRUPTED = 130
"""What shells report of a program that Ctrl-C ended."""

COMMANDS = {
    "radius": "Find how far every row may change before the answer does.",
    "verify": "Decide for every row whether the answer holds within a radius.",
    "attack": "Look for near changes of every row that break its label.",
    "curve": "Show the share of rows that is verified at many radii.",
    "recourse": "Find the cheapest ways to another decision.",
    "letters": "Write letters about rejections, with proved reasons.",
    "report": "Write a page that shows a saved run, or compares two.",
    "trend": "Write a page that shows many runs of one question, day by day.",
    "reasons": "Say which features fix the answer, and what would change it.",
    "features": "Show which single features, or sets of features, decide the answer.",
    "prove": "Decide whether properties hold for every input of a domain.",
    "diff": "Decide whether two models are the same for every input.",
    "check": "Check the evidence of a run without trusting the engine.",
    "bundle": "Put a run and all that it takes to check it into one file.",
    "compat": "Answer a configuration file of treeVerification.",
    "merge": "Join runs about the same model and question into one file.",
    "inspect": "Show what was understood of a model.",
    "convert": "Save a model in treeproof's own format.",
    "train": "Train a robust model on the rows of a data file.",
    "warmup": "Compile the kernels now, for instance into an image.",
    "demo": "Train, prove, check and compare two models on small data.",
}
"""Every command with its line in the help, in the order in which people need them."""


class CommandFailed(click.ClickException):
    """An error that the user can do something about: one sentence, exit status 2."""

    exit_code = EXIT_WRONG_INPUT

    def show(self, file: Any = None) -> None:
        """Print the sentence on standard error."""
        print_error(self.message)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"treeproof.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a call; a misspelt one gets the nearest name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = nearest(args[0], COMMANDS) if args else ""
            if not near or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message}{near}", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what treeproof refuses becomes a sentence, bugs keep their traceback."""
        try:
            with warnings.catch_warnings():
                for category in (ModelWarning, NoEffectWarning):
                    # Each sentence once, however many batches of rows it is about.
                    warnings.simplefilter("default", category)
                warnings.showwarning = _show_warning(warnings.showwarning)
                return super().invoke(ctx)
        except TreeproofError as error:
            raise CommandFailed(str(error)) from error
        except KeyboardInterrupt as interrupt:
            print_note("interrupted.")
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from interrupt


def _show_warning(others: Callable[..., None]) -> Callable[..., None]:
    """Show what treeproof warns of as one line without its place in the sources."""

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, ModelWarning | NoEffectWarning):
            print_note(f"warning: {message}")
        else:
            others(message, category, *place)

    return show


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(treeproof.__version__, prog_name="treeproof")
def main() -> None:
    """Exact robustness proofs for tree ensembles.

    Exit status: 0 done, 1 a gate failed, 2 wrong use or input, 3 undecided rows under --strict or
    evidence rejected, 130 interrupted.
    """
