"""`RobustRandomForestClassifier`: a random forest that is trained against an attacker."""

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, check_integer, check_real
from treeproof.kernels.training.growth import GrowthSettings
from treeproof.kernels.training.histograms import TrainingTable
from treeproof.kernels.training.losses import GrownTree, round_to_grid
from treeproof.kernels.training.sampling import hash_rows
from treeproof.training.classifier import TreeClassifier
from treeproof.training.growing import Growers, TreeGrower, TreeTask, usable_features
from treeproof.training.parameters import tree_depth
from treeproof.training.robust_boosting import BASE_SCORE, RobustFit
from treeproof.training.rows import TrainingRows


class RobustRandomForestClassifier(TreeClassifier):
    """Random forest that is trained against an attacker who changes rows a little.

    Each tree is grown on a bootstrap sample, each node on a random choice of features, by the Gini
    gain. Where rows can move, a row that an attacker can put on both sides of a split is counted
    where it does most harm, as in GROOT (Vos and Verwer, ICML 2021), and goes on to both sides.
    With more than two classes, every member of the forest has one tree per class, grown on the same
    sample. If the training rows are then no safer than with the label of most rows for all, that
    label is the model.

    A leaf holds the share of the class among its rows, on a scale that makes the forest a sum of
    trees: the margin is the mean over the trees of ``(share - 1 / n_classes) / h``, where h is 1/4
    for two classes and ``2 (1 / n_classes) (1 - 1 / n_classes)`` for more. The label is the class
    with the largest mean share.

    Parameters
    ----------
    eps : float, default=0.0
        How far an attacker may move each value, in the units of `feature_scale`.
    perturbation : LInf or Box, optional
        See `RobustGBDTClassifier`.
    method : {"exact", "chen2019"}, default="exact"
        How trees are grown where rows can move; "chen2019" takes the smallest gain over four
        placements of the rows near the threshold (Chen et al., ICML 2019).
    leaf_penalty : float or None, default=None
        If given, leaves are fitted together against exact worst cases, as those of
        `RobustGBDTClassifier`; they then hold no shares of classes any more, and probabilities are
        only a monotone function of the margin. For "exact".
    n_estimators : int, default=100
        Number of trees; with more than two classes, each has one tree per class.
    max_depth : int or None, default=8
        Largest depth of a tree; None for no limit.
    max_features : "sqrt", float or None, default="sqrt"
        How many features, drawn at random, each node may split on: the square root of their
        number, a share, or all.
    min_samples_leaf : float, default=1.0
        Smallest weight of the rows of a leaf.
    bootstrap : bool, default=True
        Whether each tree is grown on rows drawn with replacement (as often as their weights say),
        or on all rows.
    max_samples : float, default=1.0
        Number of rows drawn, as a share of all.
    tree_method, max_bin, feature_scale, frozen_features, monotone_constraints
        See `RobustGBDTClassifier`.
    random_state, n_jobs
        See `RobustGBDTClassifier`.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, reach_
        See `RobustGBDTClassifier`.
    """

    def __init__(
        self,
        *,
        eps: float = 0.0,
        perturbation: Any = None,
        method: Literal["exact", "chen2019"] = "exact",
        leaf_penalty: float | None = None,
        n_estimators: int = 100,
        max_depth: int | None = 8,
        max_features: Any = "sqrt",
        min_samples_leaf: float = 1.0,
        bootstrap: bool = True,
        max_samples: float = 1.0,
        tree_method: Literal["hist", "exact"] = "hist",
        max_bin: int = 256,
        feature_scale: Any = None,
        frozen_features: Any = None,
        monotone_constraints: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.eps = eps
        self.perturbation = perturbation
        self.method = method
        self.leaf_penalty = leaf_penalty
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.max_features = max_features
        self.min_samples_leaf = min_samples_leaf
        self.bootstrap = bootstrap
        self.max_samples = max_samples
        self.tree_method = tree_method
        self.max_bin = max_bin
        self.feature_scale = feature_scale
        self.frozen_features = frozen_features
        self.monotone_constraints = monotone_constraints
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the model.

        Parameters
        ----------
        X, y, sample_weight
            See `RobustGBDTClassifier.fit`.

        Returns
        -------
        RobustRandomForestClassifier
            The fitted estimator.
        """
        n_members = check_integer("n_estimators", self.n_estimators, low=1)
        random = self._generator()
        rows = self._training_rows(X, y, sample_weight)
        if self._is_attacked(rows):
            return self._fit_attacked(rows, n_members, random)
        table = self._table(rows)
        settings = self._settings(len(usable_features(table)), n_members)
        share = check_real("max_samples", self.max_samples, low=0.0, high=1.0, open_low=True)
        draws = _Draws.of(table.values, rows, share) if self.bootstrap else None
        # Random numbers are drawn before the threads start, so that their order is fixed.
        seeds = [int(seed) for seed in random.integers(1 << 62, size=n_members)]

        def grown(grower: TreeGrower, seed: int) -> list[GrownTree]:
            return self._member(grower, table, rows, draws, seed)

        with Growers(table, settings, self._n_threads(), n_members) as growers:
            members = growers.map(grown, seeds)
        return self._finish([tree for trees in members for tree in trees], 0.5)

    def _fit_attacked(
        self, rows: TrainingRows, n_members: int, random: np.random.Generator
    ) -> Self:
        """Grow every member against the attacker, and fit leaves where that is asked for."""
        rows, boxes, table = self._attacked_table(rows)
        natural = self._settings(len(table.usable), n_members)
        share = check_real("max_samples", self.max_samples, low=0.0, high=1.0, open_low=True)
        draws = _Draws.of(np.ascontiguousarray(rows.X.T), rows, share) if self.bootstrap else None
        trees = []
        for seed in random.integers(1 << 62, size=n_members):
            drawn = np.random.default_rng(int(seed))
            weights = rows.weights if draws is None else draws.taken(drawn)
            sample = np.flatnonzero(weights > 0.0).astype(np.int32)
            for output in range(self.n_outputs_):
                gradients = _share_gradients(rows.targets, output, len(self.classes_))
                round_to_grid(gradients, np.where(weights > 0.0, weights, 1.0))
                settings = natural._replace(seed=int(drawn.integers(1 << 62)))
                trees.append(table.grow(gradients, weights, settings, sample, table.usable)[0])
        trained = self._trained_trees(trees, BASE_SCORE)
        fitted = RobustFit(boxes, rows.targets, rows.weights, trained, self._n_threads())
        if self.leaf_penalty is not None:
            penalty = check_real("leaf_penalty", self.leaf_penalty, low=0.0, open_low=True)
            trained = fitted.leaves(penalty)
        return self._keep_robust(fitted, trained)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Mean share of each class over the trees; with more than two classes made to sum to 1.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows; NaN is missing.

        Returns
        -------
        float64 ndarray of shape (n_rows, n_classes)
        """
        margins = self.decision_function(X).astype(np.float64)
        n_classes = len(self.classes_)
        hessian = _hessian(n_classes)
        if margins.ndim == 1:
            share = np.clip(0.5 + hessian * margins, 0.0, 1.0)
            return np.stack([1.0 - share, share], axis=1)
        shares = np.maximum(1.0 / n_classes + hessian * (margins - self._trained.start[0]), 0.0)
        total = shares.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, shares / np.where(total > 0.0, total, 1.0), 1.0 / n_classes)

    def _settings(self, n_usable: int, n_members: int) -> GrowthSettings:
        smallest = check_real("min_samples_leaf", self.min_samples_leaf, low=0.0, open_low=True)
        return GrowthSettings(
            reg_lambda=0.0,
            gamma=0.0,
            # A little less, because hessians are rounded to a grid.
            min_child_weight=smallest * _hessian(len(self.classes_)) * (1.0 - 1e-9),
            learning_rate=1.0 / n_members,
            max_depth=tree_depth(self.max_depth),
            features_per_node=self._features_per_node(n_usable),
        )

    def _features_per_node(self, n_usable: int) -> int:
        if self.max_features is None:
            return max(n_usable, 1)
        if isinstance(self.max_features, str):
            if self.max_features != "sqrt":
                raise InvalidInput(
                    "'max_features' must be 'sqrt', a share above 0 and at most 1, or None."
                    f" Got {self.max_features!r}."
                )
            return max(1, math.isqrt(n_usable))
        share = check_real("max_features", self.max_features, low=0.0, high=1.0, open_low=True)
        return max(1, math.floor(share * n_usable))

    def _member(
        self,
        grower: TreeGrower,
        table: TrainingTable,
        rows: TrainingRows,
        draws: "_Draws | None",
        seed: int,
    ) -> list[GrownTree]:
        """Grow one tree, or with more than two classes one per class, on one sample."""
        random = np.random.default_rng(seed)
        weights = rows.weights if draws is None else draws.taken(random)
        taken = weights > 0.0
        sample = np.flatnonzero(taken).astype(np.int32)
        order = table.order[taken[table.order]].reshape(-1, len(sample))
        features = usable_features(table)
        unused = np.zeros(len(rows.targets), dtype=np.float32)
        trees = []
        for output in range(self.n_outputs_):
            gradients = _share_gradients(rows.targets, output, len(self.classes_))
            # Rows that were not drawn have no weight; they only need some number on the grid.
            round_to_grid(gradients, np.where(taken, weights, 1.0))
            task = TreeTask(
                gradients=gradients,
                rows=sample,
                order=order,
                features=features,
                seed=int(random.integers(1 << 62)),
            )
            trees.append(grower.grow(task, unused))
        return trees


@dataclass(frozen=True, slots=True)
class _Draws:
    """Drawing rows with replacement, as often as their weights say.

    A weight that is a whole number counts as so many rows, and rows are ordered by what they hold;
    so neither their order in the table nor copies instead of weights change what is drawn.
    """

    order: NDArray[np.int64]  # rows by their hashes
    total: NDArray[np.float64]  # running sums of their weights
    n_drawn: int

    @classmethod
    def of(cls, values: NDArray[np.float32], rows: TrainingRows, share: float) -> Self:
        hashes = np.empty(len(rows.targets), dtype=np.uint64)
        # Adding zero turns -0.0 into 0.0, which has other bits.
        hash_rows((values + np.float32(0.0)).view(np.uint32), rows.targets, hashes)
        order = np.argsort(hashes, kind="stable")
        whole = np.all(rows.weights == np.rint(rows.weights))
        size = rows.weights.sum() if whole else len(rows.targets)
        return cls(order, np.cumsum(rows.weights[order]), max(1, round(share * float(size))))

    def taken(self, random: np.random.Generator) -> NDArray[np.float64]:
        """How often each row is drawn."""
        points = random.random(self.n_drawn) * self.total[-1]
        places = np.searchsorted(self.total, points, side="right")
        drawn = self.order[np.minimum(places, len(self.order) - 1)]
        return np.bincount(drawn, minlength=len(self.order)).astype(np.float64)


def _hessian(n_classes: int) -> float:
    """Hessian of a row before the first tree, which scales shares to margins."""
    return 0.25 if n_classes == 2 else 2.0 / n_classes * (1.0 - 1.0 / n_classes)


def _share_gradients(
    targets: NDArray[np.int64], output: int, n_classes: int
) -> NDArray[np.float64]:
    """Gradients of the loss before the first tree; leaves then hold shares of the class.

    Their squared sum over the sum of hessians is the Gini gain, up to a constant.
    """
    gradients = np.empty((len(targets), 2))
    is_class = targets == (1 if n_classes == 2 else output)
    gradients[:, 0] = 1.0 / n_classes - is_class
    gradients[:, 1] = _hessian(n_classes)
    return gradients
