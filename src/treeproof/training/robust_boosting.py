"""Boosting against an attacker: a structure from worst cases of splits, leaves from exact ones."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.training.attacked import AttackedSettings
from treeproof.kernels.training.losses import GrownTree, round_to_grid
from treeproof.model.ensemble import Ensemble
from treeproof.training.attacked import AttackedTable
from treeproof.training.boxes import RowBoxes
from treeproof.training.export import TrainedTrees, to_ensemble
from treeproof.training.parameters import Sampling
from treeproof.training.refit import LeafFit, fit_against_worst_cases
from treeproof.training.worst_cases import WorstCases

FloatArray = NDArray[np.float64]

BASE_SCORE = 0.5
"""The margin before any tree is 0: the bias is in the first tree of each output."""


@dataclass(slots=True)
class RobustRounds:
    """The state of boosting: for every row the sum of the worst leaves of each tree.

    That sum is a bound of the row's worst margin, which the trees of later rounds make up for.
    """

    table: AttackedTable
    targets: NDArray[np.int64]
    weights: FloatArray
    n_outputs: int
    settings: AttackedSettings
    sampling: Sampling
    margins: FloatArray = field(init=False)
    trees: list[GrownTree] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with the shares of the classes."""
        n_classes = max(self.n_outputs, 2)
        share = np.bincount(self.targets, self.weights, n_classes) / self.weights.sum()
        start = np.log(np.clip(share, 1e-6, 1.0 - 1e-6))
        start = start[1:] - start[0] if self.n_outputs == 1 else start - start.mean()
        self.margins = np.repeat(start[:, None], len(self.targets), axis=1)
        # In the first trees, so that leaves are all there is.
        self._start = start

    _start: FloatArray = field(init=False)

    def next_round(self, random: np.random.Generator) -> None:
        """Grow one tree per output."""
        taken = self.weights > 0.0
        if self.sampling.subsample < 1.0:
            sampled = taken & (random.random(len(taken)) < self.sampling.subsample)
            taken = sampled if sampled.any() else taken
        rows = np.flatnonzero(taken).astype(np.int32)
        gradients = self._gradients()
        for part in gradients:
            # Sums on a grid are exact, whatever the order of rows.
            round_to_grid(part, np.where(self.weights > 0.0, self.weights, 1.0))
        for output in range(self.n_outputs):
            features = self.table.usable
            if self.sampling.colsample_bytree < 1.0 and len(features):
                count = max(1, int(self.sampling.colsample_bytree * len(features)))
                features = np.sort(random.choice(features, count, replace=False))
            settings = self.settings._replace(seed=int(random.integers(1 << 62)))
            grown, tree = self.table.grow(
                gradients[output], self.weights, settings, rows, features.astype(np.int32)
            )
            self.table.add_worst(grown, tree, self.wants_more(output), self.margins[output])
            if len(self.trees) < self.n_outputs:
                value = grown.value + np.float32(self._start[output])
                grown = grown._replace(value=np.where(grown.left < 0, value, np.float32(0.0)))
            self.trees.append(grown)

    def wants_more(self, output: int) -> NDArray[np.bool_]:
        """Rows whose attacker looks for small sums of an output."""
        return self.targets == (1 if self.n_outputs == 1 else output)

    def broken(self) -> FloatArray:
        """Whether each row's label may be another one somewhere, as far as the bounds tell."""
        if self.n_outputs == 1:
            return np.where(self.targets == 1, self.margins[0] < 0.0, self.margins[0] >= 0.0)
        rows = np.arange(len(self.targets))
        others = self.margins.copy()
        others[self.targets, rows] = -np.inf
        return (self.margins[self.targets, rows] <= others.max(axis=0)).astype(np.float64)

    def _gradients(self) -> FloatArray:
        """Gradients and hessians of the loss at the worst sums, without weights."""
        n_rows = len(self.targets)
        gradients = np.empty((self.n_outputs, n_rows, 2))
        if self.n_outputs == 1:
            share = 1.0 / (1.0 + np.exp(-np.clip(self.margins, -500.0, 500.0)))
            scale = 1.0
        else:
            share = np.exp(self.margins - self.margins.max(axis=0))
            share /= share.sum(axis=0)
            scale = 2.0
        is_own = np.stack([self.wants_more(output) for output in range(self.n_outputs)])
        gradients[:, :, 0] = share - is_own
        gradients[:, :, 1] = np.maximum(scale * share * (1.0 - share), 1e-6)
        return gradients


@dataclass(slots=True)
class RobustFit:
    """Rows, a structure that was grown for them, and leaves for any penalty."""

    boxes: RowBoxes
    targets: NDArray[np.int64]
    weights: FloatArray
    trained: TrainedTrees
    n_jobs: int = 1
    node_limit: int = 2000
    _worst: WorstCases | None = None
    _known: LeafFit | None = None

    @property
    def ensemble(self) -> Ensemble:
        """The structure with the leaves it was grown with."""
        return to_ensemble(self.trained)

    @property
    def worst(self) -> WorstCases:
        """Worst cases of the rows."""
        if self._worst is None:
            self._worst = WorstCases(
                self.ensemble,
                self.boxes,
                self.targets,
                node_limit=self.node_limit,
                n_jobs=self.n_jobs,
            )
        return self._worst

    def leaves(self, penalty: float, *, is_trial: bool = False) -> TrainedTrees:
        """The structure with leaves fitted to its exact worst cases; roughly in a trial."""
        worst = self.worst
        rounds, tolerance = (5, 0.03) if is_trial else (12, 0.01)
        self._known = fit_against_worst_cases(
            worst, self.weights, penalty, known=self._known, rounds=rounds, tolerance=tolerance
        )
        return with_leaves(self.trained, worst.ensemble, worst.leaf_values(self._known.values))

    def pruned(self, penalty: float) -> TrainedTrees:
        """As `leaves`, without splits that can go and the objective does not rise.

        Splits above two leaves are tried, the most alike first and many at once; leaves are fitted
        anew each time, so that what is compared is the best that either structure can do.
        """
        trained = self.leaves(penalty)
        known, count = self._known, len(trained.trees)
        assert known is not None  # noqa: S101 - leaves were just fitted
        objective = known.objective
        for _ in range(_MOST_TRIALS):
            candidates = _removable(trained)
            count = min(count, len(candidates))
            if count == 0:
                break
            smaller = replace(trained, trees=_without(trained.trees, candidates[:count]))
            trial = replace(self, trained=smaller, _worst=None, _known=None)
            refitted = trial.leaves(penalty)
            assert trial._known is not None  # noqa: S101 - leaves were just fitted
            if trial._known.objective <= objective:
                trained, objective = refitted, trial._known.objective
                count *= 2
            else:
                count //= 4
        return trained


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
    left, right, feature = tree.left.copy(), tree.right.copy(), tree.feature.copy()
    left[nodes] = right[nodes] = feature[nodes] = -1
    reached = np.zeros(len(left), dtype=bool)
    reached[0] = True
    for node in np.flatnonzero(left >= 0):  # parents come before their children
        reached[left[node]] = reached[right[node]] = reached[node]
    place = np.append(np.cumsum(reached) - 1, -1).astype(np.int32)  # the last is for "no child"
    is_leaf = left[reached] < 0
    return GrownTree(
        feature=feature[reached],
        threshold=np.where(is_leaf, np.float32(0.0), tree.threshold[reached]),
        missing_left=tree.missing_left[reached] & ~is_leaf,
        left=place[left[reached]],
        right=place[right[reached]],
        value=np.where(is_leaf, tree.value[reached], np.float32(0.0)),
        gain=np.where(is_leaf, np.float32(0.0), tree.gain[reached]),
        cover=tree.cover[reached],
    )


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
    n_classes = max(trained.n_outputs, 2)
    share = np.bincount(targets, weights, n_classes) / weights.sum()
    margin = np.log(np.clip(share, 1e-6, 1.0 - 1e-6))
    margin = margin[1:] - margin[0] if trained.n_outputs == 1 else margin - margin.mean()
    nothing = np.full(1, -1, dtype=np.int32)
    zero = np.zeros(1, dtype=np.float32)
    trees = tuple(
        GrownTree(
            feature=nothing, threshold=zero, missing_left=np.zeros(1, dtype=bool), left=nothing,
            right=nothing, value=np.array([value], dtype=np.float32), gain=zero,
            cover=np.array([weights.sum()], dtype=np.float32),
        )
        for value in margin
    )  # fmt: skip
    return replace(trained, trees=trees)
