"""Boosting against an attacker: a structure from worst cases of splits, leaves from exact ones."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.training.growth import GrowthSettings
from treeproof.kernels.training.losses import GrownTree, logistic_gradients
from treeproof.model.ensemble import Ensemble
from treeproof.query.boxes import RowBoxes
from treeproof.training.attacked import AttackedTable
from treeproof.training.export import TrainedTrees, to_ensemble
from treeproof.training.growing import reached_nodes
from treeproof.training.parameters import Sampling
from treeproof.training.refit import LeafFit, fit_against_worst_cases
from treeproof.training.rounds import Rounds
from treeproof.training.rows import TrainingRows
from treeproof.training.worst_cases import WorstCases

FloatArray = NDArray[np.float64]

BASE_SCORE = 0.5
"""The margin before any tree is 0: the bias is in the first tree of each output."""


class RobustRounds(Rounds):
    """Rounds in which every tree gives each row its worst leaf.

    The sum of these leaves is a bound of the row's worst margin, which later trees make up for.
    Margins begin with the shares of the classes, which are put into the first trees.
    """

    def __init__(
        self,
        table: AttackedTable,
        rows: TrainingRows,
        n_outputs: int,
        settings: GrowthSettings,
        sampling: Sampling,
    ) -> None:
        self._start = share_margins(rows.targets, rows.weights, n_outputs)
        super().__init__(rows, sampling, tuple(self._start.tolist()), table.usable)
        self._table, self._settings = table, settings
        self.trees: list[GrownTree] = []

    def next_round(self, random: np.random.Generator) -> None:
        """Grow one tree per output."""
        taken = np.flatnonzero(self._taken(random)).astype(np.int32)
        self._find_gradients()
        for output, gradients in enumerate(self._gradients):
            self._round(output)
            features = self._features(random)
            settings = self._settings._replace(seed=int(random.integers(1 << 62)))
            grown, tree = self._table.grow(gradients, self.weights, settings, taken, features)
            self._table.add_worst(grown, tree, self._wants_more(output), self.margins[output])
            if len(self.trees) < len(self._start):
                value = grown.value + np.float32(self._start[output])
                grown = grown._replace(value=np.where(grown.left < 0, value, np.float32(0.0)))
            self.trees.append(grown)

    def _find_gradients(self) -> None:
        """Each output tells its class from all others; a worst case of the softmax has no form."""
        for output in range(len(self.margins)):
            here = slice(output, output + 1)
            targets = self._wants_more(output).astype(np.int64)
            logistic_gradients(self.margins[here], targets, self._gradients[here])

    def _wants_more(self, output: int) -> NDArray[np.bool_]:
        """Rows whose attacker looks for small sums of an output."""
        return self.targets == (1 if len(self._start) == 1 else output)

    def broken(self) -> NDArray[np.bool_]:
        """Whether each row's label may be another one somewhere, as far as the bounds tell."""
        if len(self._start) == 1:
            return np.where(self.targets == 1, self.margins[0] < 0.0, self.margins[0] >= 0.0)
        rows = np.arange(len(self.targets))
        others = self.margins.copy()
        others[self.targets, rows] = -np.inf
        below: NDArray[np.bool_] = self.margins[self.targets, rows] <= others.max(axis=0)
        return below


def share_margins(targets: NDArray[np.int64], weights: FloatArray, n_outputs: int) -> FloatArray:
    """Margins of each class against all others that give every row the shares of the classes."""
    share = np.bincount(targets, weights, max(n_outputs, 2)) / weights.sum()
    share = np.clip(share[-n_outputs:], 1e-6, 1.0 - 1e-6)
    margins: FloatArray = np.log(share) - np.log1p(-share)
    return margins


@dataclass(slots=True)
class RobustFit:
    """Rows, a structure that was grown for them, and leaves for any penalty."""

    boxes: RowBoxes
    targets: NDArray[np.int64]
    weights: FloatArray
    trained: TrainedTrees
    n_jobs: int = 1
    node_limit: int = 2000
    objective: float = np.nan
    _fits: dict[int, tuple[WorstCases, LeafFit | None]] = field(default_factory=dict)

    def leaves(self, penalty: float, *, is_trial: bool = False) -> TrainedTrees:
        """The structure with leaves fitted to its exact worst cases; roughly in a trial.

        With more than two classes, the trees of each are fitted to tell it from all others.
        """
        n_outputs, trees = self.trained.n_outputs, list(self.trained.trees)
        rounds, tolerance = (5, 0.03) if is_trial else (12, 0.01)
        self.objective = 0.0
        for output in range(n_outputs):
            part, targets = self.trained, self.targets
            if n_outputs > 1:
                part = replace(part, trees=part.trees[output::n_outputs], n_outputs=1,
                               classes=(False, True))  # fmt: skip
                targets = (targets == output).astype(np.int64)
            worst, known = self._fits.get(output, (None, None))
            if worst is None:
                worst = WorstCases(
                    to_ensemble(part), self.boxes, targets,
                    node_limit=self.node_limit, n_jobs=self.n_jobs,
                )  # fmt: skip
            known = fit_against_worst_cases(
                worst, self.weights, penalty, known=known, rounds=rounds, tolerance=tolerance
            )
            if n_outputs * self.boxes.rows.size <= _MOST_KEPT:
                self._fits[output] = worst, known
            self.objective += known.objective
            fitted = with_leaves(part, worst.ensemble, worst.leaf_values(known.values))
            trees[output::n_outputs] = fitted.trees
        return replace(self.trained, trees=tuple(trees))

    def pruned(self, penalty: float) -> TrainedTrees:
        """As `leaves`, without splits that can go and the objective does not rise.

        Splits above two leaves are tried, the most alike first and many at once; leaves are fitted
        anew each time, so that what is compared is the best that either structure can do.
        """
        trained = self.leaves(penalty)
        objective, count = self.objective, len(trained.trees)
        for _ in range(_MOST_TRIALS):
            candidates = _removable(trained)
            count = min(count, len(candidates))
            if count == 0:
                break
            smaller = replace(trained, trees=_without(trained.trees, candidates[:count]))
            trial = replace(self, trained=smaller, _fits={})
            refitted = trial.leaves(penalty)
            if trial.objective <= objective:
                trained, objective = refitted, trial.objective
                count *= 2
            else:
                count //= 4
        return trained


_MOST_KEPT = 1 << 27
"""Values of rows, for each output, of which worst cases are kept for another fit."""
_MOST_TRIALS = 24
"""Structures that pruning tries at most."""


def _removable(trained: TrainedTrees) -> list[tuple[int, int]]:
    """Tree and node of every split above two leaves, those with the most similar leaves first."""
    found = []
    for number, tree in enumerate(trained.trees):
        for node in np.flatnonzero(tree.left >= 0):
            left, right = tree.left[node], tree.right[node]
            if tree.left[left] < 0 and tree.left[right] < 0:
                found.append(
                    (abs(float(tree.value[left]) - float(tree.value[right])), number, node)
                )
    return [(number, int(node)) for _, number, node in sorted(found)]


def _without(trees: tuple[GrownTree, ...], splits: list[tuple[int, int]]) -> tuple[GrownTree, ...]:
    """The same trees with leaves in place of some splits; their values are for a fit to find."""
    cut: dict[int, list[int]] = {}
    for number, node in splits:
        cut.setdefault(number, []).append(node)
    return tuple(
        _with_leaves_at(tree, cut[number]) if number in cut else tree
        for number, tree in enumerate(trees)
    )


def _with_leaves_at(tree: GrownTree, nodes: list[int]) -> GrownTree:
    left, right = tree.left.copy(), tree.right.copy()
    left[nodes] = right[nodes] = -1
    return reached_nodes(tree._replace(left=left, right=right))


def with_leaves(trained: TrainedTrees, ensemble: Ensemble, leaf_value: FloatArray) -> TrainedTrees:
    """The same trees with other leaves, given in the order of an ensemble made of them."""
    canonical, trees = ensemble.trees, []
    for number, tree in enumerate(trained.trees):
        nodes = slice(canonical.root[number], canonical.root[number + 1])
        leaves = canonical.leaf[nodes][canonical.feature[nodes] < 0]
        value = np.zeros(len(tree.left), dtype=np.float32)
        value[canonical.leaf_source[leaves]] = leaf_value[leaves, 0]
        trees.append(tree._replace(value=value))
    return replace(trained, trees=tuple(trees))


def robust_error(
    ensemble: Ensemble,
    boxes: RowBoxes,
    targets: NDArray[np.int64],
    weights: FloatArray,
    *,
    n_jobs: int = 1,
) -> float:
    """Weighted share of the rows that can be broken, or that no proof was found for."""
    worst = WorstCases(ensemble, boxes, targets, n_jobs=n_jobs)
    # Sound: each of the sums' additions rounds by at most half a unit of their magnitude.
    largest = float(np.abs(ensemble.trees.leaf_value).max(initial=0.0))
    unit = 2.0**-23 if ensemble.aggregation.precision == "float32" else 2.0**-52
    magnitude = ensemble.n_trees * largest + max(map(abs, ensemble.aggregation.start))
    slack = 2.0 * ensemble.n_trees * unit * magnitude

    def is_open(lower: FloatArray, margins: FloatArray) -> NDArray[np.bool_]:
        return (lower <= slack) & (margins > slack)

    _, bounds = worst.find(worst.values_of(ensemble.trees.leaf_value), is_open=is_open)
    return float(np.average(bounds <= slack, weights=weights))


def constant_answer(
    trained: TrainedTrees, targets: NDArray[np.int64], weights: FloatArray
) -> TrainedTrees:
    """A model that gives every row the label of most rows: a leaf per output."""
    nothing = np.full(1, -1, dtype=np.int32)
    zero = np.zeros(1, dtype=np.float32)
    trees = tuple(
        GrownTree(
            feature=nothing, threshold=zero, missing_left=np.zeros(1, dtype=bool), left=nothing,
            right=nothing, value=np.array([value], dtype=np.float32), gain=zero,
            cover=np.array([weights.sum()], dtype=np.float32),
        )
        for value in share_margins(targets, weights, trained.n_outputs)
    )  # fmt: skip
    return replace(trained, trees=trees)
