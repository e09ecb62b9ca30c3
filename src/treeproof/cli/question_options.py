"""The options of commands that ask about the rows of a data file, and what they say."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.options import (
    ABOVE_ZERO,
    DISTANCE,
    FILE,
    POSITIVE,
    SEED,
    Decorator,
    all_of,
    by_name_option,
    id_option,
    label_option,
    libsvm_options,
    load_options,
    rows_option,
    section,
)
from treeproof.errors import InvalidInput, NoEffectWarning

if TYPE_CHECKING:
    from treeproof.data.sources import FileSource, Rows
    from treeproof.prediction import Model
    from treeproof.query.goals import ScoreChange
    from treeproof.query.perturbations import Ball
    from treeproof.query.threats import ThreatModel

RADIUS_STATES = {"verified": "exact", "falsified": "broken", "unknown": "undecided"}
"""What verdicts are called where radii are asked for."""
FORMATS = ("table", "json", "csv")
SUMMARIES = ("junit", "markdown")
"""Forms of answers; and of what platforms show of a run and its gate."""
_SORTS = ("row", "radius", "-radius", "seconds", "-seconds")

_rows = section("Rows")
_threat = section("Threat model")
_engine = section("Engine and limits")
_output = section("Output")

# Names of parameters are those of `FileSource`, `ThreatModel` and `Question`.
_ASKED_OPTIONS = all_of(
    label_option,
    rows_option,
    _rows("--sample", type=POSITIVE, help="Number of rows to sample."),
    _rows("--seed", type=SEED, default=0, help="Seed of --sample."),
    by_name_option,
    libsvm_options,
    _threat(
        "--threat",
        metavar="FILE",
        type=FILE,
        help="A threat model as a TOML file; command-line options override the file.",
    ),
    _threat(
        "--norm",
        type=click.Choice(["LInf", "L1", "L2", "L0", "cost"], case_sensitive=False),
        help="What a radius limits: every move, their sum, length or number, or prices of the"
        " threat model. [default: LInf]",
    ),
    _threat(
        "--relative",
        is_flag=True,
        default=None,
        help="Units are multiples of the row's own value: 0.1 is ten per cent.",
    ),
    _threat(
        "--eps-scale",
        "scale",
        type=click.Choice(["one", "std", "range"]),
        help="Unit of a radius: 1, or each feature's spread over all rows of DATA. [default: one]",
    ),
    _threat(
        "--frozen",
        multiple=True,
        metavar="NAME",
        help="A feature that does not move, by name or number; may be repeated.",
    ),
    _threat(
        "--moving",
        multiple=True,
        metavar="NAME",
        help="The only features that move, by name or number; may be repeated.",
    ),
    _threat("--low", type=float, help="Least value of any feature."),
    _threat("--high", type=float, help="Largest value of any feature."),
    _threat(
        "--score-change",
        type=DISTANCE,
        metavar="DELTA",
        help="The claim: the raw score moves by at most DELTA, instead of the label being kept.",
    ),
    _threat(
        "--arithmetic",
        type=click.Choice(["float64", "real"]),
        help="What rows are: doubles that the model rounds, or real numbers. [default: float64]",
    ),
)
_ANSWER_OPTIONS = all_of(
    _engine("--jobs", type=POSITIVE, help="Number of threads. [default: all cores]"),
    _engine(
        "--time-limit",
        "time_limit_s",
        type=ABOVE_ZERO,
        metavar="SECONDS",
        help="Time limit per row; a row that needs more is undecided.",
    ),
    _engine("--node-limit", type=POSITIVE, help="Limit of branching nodes per row."),
    _output(
        "--out",
        metavar="FILE",
        type=FILE,
        help="Save the answers: as a run file (.jsonl, .parquet), or as a table (.csv, .xlsx).",
    ),
)
_SHOWN_OPTIONS = all_of(
    _output("--all-rows", is_flag=True, help="Show every row in the table, not only 20."),
    _output("--strict", is_flag=True, help="End with exit status 3 when rows are undecided."),
    load_options,
)

shown_rows_options = all_of(
    id_option,
    _output(
        "--only",
        multiple=True,
        type=click.Choice([*RADIUS_STATES, *RADIUS_STATES.values()]),
        metavar="VERDICT",
        help="Show only rows of a verdict, such as falsified or undecided; may be repeated.",
    ),
    _output(
        "--sort",
        type=click.Choice(_SORTS),
        default=_SORTS[0],
        help="Order of the rows that are shown; with - the largest come first.",
    ),
)
"""Which rows are shown, and what they are called."""

_RUN_OPTIONS = all_of(
    _threat(
        "--attacker-class",
        metavar="LABEL",
        help="Only rows of this class are attacked; all others stay as they are.",
    ),
    _engine(
        "--memory-limit",
        "memory_limit_mb",
        type=ABOVE_ZERO,
        metavar="MB",
        help="Limit of working memory per row; a row that needs more is undecided.",
    ),
    _engine(
        "--dask",
        metavar="ADDRESS",
        help="Run on a Dask cluster, such as tcp://scheduler:8786.",
    ),
    _output("--resume", is_flag=True, help="Resume the run in --out."),
    _output("--evidence", is_flag=True, help="Save proofs that 'treeproof check' verifies."),
)


def question_options(
    engine: str = "exact",
    engine_help: str = "Verification engine.",
    formats: Sequence[str] = FORMATS,
) -> Decorator:
    """The options of a question; `QuestionOptions.parse` takes what they are given."""
    chosen = _engine("--engine", default=engine, metavar="NAME", help=engine_help)
    form = _output(
        "--format",
        "output_format",
        type=click.Choice(formats),
        default=formats[0],
        help="Form of the answers on standard output.",
    )
    return all_of(_ASKED_OPTIONS, chosen, _ANSWER_OPTIONS, form, _SHOWN_OPTIONS)


def run_options(
    engine: str = "exact",
    engine_help: str = "Verification engine.",
    formats: Sequence[str] = FORMATS,
) -> Decorator:
    """The options of a question, and those of runs over many rows."""
    return all_of(question_options(engine, engine_help, formats), _RUN_OPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """What `question_options` or `run_options` are given."""

    threat: "ThreatModel"
    reading: dict[str, Any]
    """Which rows, as `FileSource` takes it."""
    limits: dict[str, Any]
    """Limits that were given, as `treeproof.verify` takes them."""
    loading: dict[str, Any]
    """What `load_model` takes."""
    engine: str
    output_format: str
    all_rows: bool
    strict: bool
    jobs: int = -1
    out: str | None = None
    only: tuple[str, ...] = ()
    sort: str = "row"
    resume: bool = False
    dask: str | None = None
    evidence: bool = False

    @classmethod
    def parse(cls, options: dict[str, Any]) -> "QuestionOptions":
        """Sort the options of a command line, and read the threat model."""
        from treeproof.query.threats import ThreatModel, load_threat
        from treeproof.results.sheets import is_table

        left = dict(options)

        def take(*names: str) -> dict[str, Any]:
            values = {name: left.pop(name, None) for name in names}
            return {name: value for name, value in values.items() if value is not None}

        file = left.pop("threat")
        threat = ThreatModel() if file is None else load_threat(file)
        threat = threat.with_options(
            **take(
                "frozen",
                "moving",
                "norm",
                "relative",
                "scale",
                "low",
                "high",
                "score_change",
                "arithmetic",
                "attacker_class",
            )
        )
        for name in ("resume", "evidence"):
            if left.get(name) and is_table(left["out"] or ""):
                raise click.UsageError(
                    f"--{name} needs a run file, which holds all that was found. Got the table"
                    f" '{left['out']}': give --out a .jsonl or .parquet file."
                )
        if left.get("resume") and left["out"] is None:
            raise click.UsageError("--resume needs a run file: give it with --out.")
        return cls(
            threat=threat,
            reading=take(
                "label", "id", "rows", "sample", "seed", "first_index", "absent", "by_name"
            ),
            limits=take("time_limit_s", "node_limit", "memory_limit_mb"),
            **take("engine", "jobs", "out", "output_format", "all_rows", "strict"),
            **take("resume", "dask", "evidence", "only", "sort"),
            loading=left,
        )

    @property
    def writes_table(self) -> bool:
        """Whether the answers are saved as a table, and so when all are there."""
        from treeproof.results.sheets import is_table

        return self.out is not None and is_table(self.out)

    @property
    def goal(self) -> "ScoreChange | None":
        """The claim, where it is not that the label is kept."""
        goal: ScoreChange | None = self.threat.options["goal"]
        return goal

    def source(self, model: "Model", data_path: str) -> "FileSource":
        """The rows that were chosen; refused where nothing can be asked about them."""
        from treeproof.data.sources import FileSource
        from treeproof.query.perturbations import PerRow

        if model.ensemble.decision.kind == "score" and self.goal is None:
            raise InvalidInput(
                "A model that gives scores has no label to keep."
                " Say with --score-change by how much its raw score may move."
            )
        self._warn_of_no_effect(data_path)
        own = self.threat.eps if isinstance(self.threat.eps, PerRow) else PerRow()
        return FileSource(model.ensemble, data_path, eps=own.column, **self.reading)

    def _warn_of_no_effect(self, data_path: str) -> None:
        """Warn of options about rows that were given and change nothing."""
        from treeproof.data.readers import LibsvmFile, ReadOptions, open_data

        context = click.get_current_context()
        given = {
            name
            for name in ("seed", "first_index", "absent")
            if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        }
        if "seed" in given and "sample" not in self.reading:
            warnings.warn("--seed has no effect without --sample.", NoEffectWarning, stacklevel=2)
        said = ReadOptions(**{name: self.reading[name] for name in given - {"seed"}})
        if given - {"seed"} and not isinstance(open_data(data_path, said), LibsvmFile):
            warnings.warn(
                f"--first-column and --absent have no effect on '{data_path}': they are for LIBSVM"
                " files.",
                NoEffectWarning,
                stacklevel=2,
            )

    def read_rows(self, source: "FileSource") -> "Rows":
        """All rows in memory, for commands that answer them at once; runs stream them instead."""
        from treeproof.data.sources import Rows

        if self.threat.attacker_class is not None:
            raise InvalidInput(
                "'attacker_class' of a threat model is for the commands radius, verify, attack and"
                " curve only."
            )
        return Rows.join(list(source.parts()))

    def ball(self, source: "FileSource", eps: float | None, *, has_radius: bool) -> "Ball":
        """The perturbation; without a radius of its own, `eps` or that of the threat model.

        Units come from all rows of the file, so that ranges of it are answered alike.
        """
        threat = self.threat if eps is None else self.threat.with_options(eps=eps)
        spread = None if threat.scale == "one" else source.spread(threat.scale)
        ensemble = source.ensemble
        threat.warn_of_categories(ensemble.feature_names, ensemble.is_categorical)
        return threat.ball(
            ensemble.feature_names, ensemble.n_features, spread, has_radius=has_radius
        )
