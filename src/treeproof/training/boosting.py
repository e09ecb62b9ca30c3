"""`RobustGBDTClassifier`: gradient boosting that is trained against an attacker."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from treeproof.errors import InvalidInput, check_choice, check_integer, check_real
from treeproof.kernels.training.growth import GrowthSettings
from treeproof.kernels.training.losses import (
    GrownTree,
    sigmoid_probabilities,
    softmax_probabilities,
)
from treeproof.query.boxes import RowBoxes
from treeproof.query.conflicts import MOST_ROWS, find_conflicts
from treeproof.training.classifier import TreeClassifier
from treeproof.training.export import starting_margins, to_ensemble
from treeproof.training.growing import Growers
from treeproof.training.parameters import Sampling, tree_depth
from treeproof.training.robust_boosting import (
    BASE_SCORE,
    RobustFit,
    RobustRounds,
    robust_error,
)
from treeproof.training.rounds import BoostingRounds, WatchedRows
from treeproof.training.rows import TrainingRows

Progress = Callable[[int, int, dict[str, float]], bool | None]

_LOG = logging.getLogger("treeproof.training")
_SMALLEST_PROBABILITY = 1e-6


class RobustGBDTClassifier(TreeClassifier):
    """Gradient-boosted trees that are trained against an attacker who changes rows a little.

    With ``eps=0`` this is ordinary gradient boosting, split by split what XGBoost does. Where rows
    can move, trees are grown with every row on every side on which the attacker can put it, and at
    the end the leaves of all trees are fitted together against the exact worst case of each row,
    which the exact engine finds. If the rows are then no safer than with the label of most rows
    for all, that label is the model.

    Parameters
    ----------
    eps : float, default=0.0
        How far an attacker may move each value, in the units of `feature_scale`.
    perturbation : LInf, L1, L2, L0, Cost, All or Box, optional
        How rows may move, in place of `eps`, `feature_scale` and `frozen_features`; per feature
        and direction, with a domain. Trees are trained against a box: as far as each feature gets
        alone.
    method : {"exact", "chen2019"}, default="exact"
        How trees are trained where rows can move. "chen2019" scores splits by four placements of
        the rows near the threshold (Chen et al., "Robust Decision Trees Against Adversarial
        Examples", ICML 2019), and fits nothing to the attacker; it is there for comparison.
    leaf_penalty : float or None, default=10.0
        Factor of half the sum of squared leaves in their fit against worst cases; larger values
        give more cautious models. None leaves them as they were grown. For "exact".
    prune : bool, default=False
        Whether splits go that do not lower the penalised robust loss, leaves fitted anew: the model
        gets smaller and its proofs faster, for several fits more. For "exact".
    conflicts : {"drop", "keep"}, default="drop"
        Whether trees are grown without a smallest set of rows such that no two others of different
        classes can be made the same; of more than 10,000 rows none is left out. For "exact".
    min_samples_leaf : int, default=10
        Least number of rows that can reach a leaf. For "exact".
    n_estimators : int, default=100
        Number of rounds; with more than two classes, each grows one tree per class.
    max_depth : int or None, default=6
        Largest depth of a tree; None for no limit.
    learning_rate : float, default=0.3
        Factor of every leaf.
    reg_lambda : float, default=1.0
        L2 regularisation of leaf weights.
    gamma : float, default=0.0
        Splits of leaves that gain less than this are undone, from the bottom up.
    min_child_weight : float, default=1.0
        Smallest sum of hessians of a child.
    subsample : float, default=1.0
        Share of the rows that each round uses.
    colsample_bytree : float, default=1.0
        Share of the features that each tree uses.
    tree_method : {"hist", "exact"}, default="hist"
        Whether features with more than `max_bin` distinct values are binned.
    max_bin : int, default=256
        Largest number of bins, for "hist".
    feature_scale : None, "range", "std" or array-like of shape (n_features,), default=None
        What eps is multiplied by for each feature: 1, the range or the standard deviation of the
        training rows, or given numbers.
    frozen_features : None or sequence of int or str, default=None
        Features that no attacker can change: they are split as if eps were 0.
    monotone_constraints : None, mapping or sequence, default=None
        Direction (1, -1 or 0) in which margins may change with a feature, by feature number or
        name, or one direction per feature. For two classes only the margin of the second class
        is meant, with more that of every class.
    base_score : float or None, default=None
        Probability of the second class before the first tree; with more than two classes, the
        margin of every class. None: the share of the second class, or 0.5.
    early_stopping_rounds : int or None, default=None
        Stop when the last evaluation set has not improved for so many rounds, and keep the rounds
        up to the best one.
    validation_fraction : float, default=0.1
        Share of the rows that is held out for early stopping when `fit` gets no `eval_set`.
    eval_metric : {"logloss", "error"}, default="logloss"
        What is measured on evaluation sets.
    random_state : int, RandomState or None, default=None
        Seed of all sampling.
    n_jobs : int or None, default=None
        Threads; -1 for all cores. The trained model does not depend on it.
    verbose : int, default=0
        Log every so many rounds, to the logger ``treeproof.training``; 0 for silence.
    progress : callable or None, default=None
        Called after each round with the number of rounds done, their planned number, and the
        scores of the evaluation sets; a true answer stops training.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    n_features_in_ : int
        Number of columns that `fit` saw.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names, where `fit` saw any.
    reach_ : ndarray of shape (n_features_in_,)
        How far the attacker moves each feature: eps times its scale, 0 for frozen ones.
    n_estimators_ : int
        Number of rounds in the model.
    best_iteration_, best_score_ : int, float
        Best round (counted from 0) and its score, with early stopping.
    evals_result_ : dict
        Scores of every evaluation set after every round; where rows can move and the method is
        "exact", the exact robust error before leaves are fitted, which early stopping watches.
    robust_error_, is_constant_ : float, bool
        Where rows can move, by "exact": the exact robust error on the training rows, and whether
        the model is a constant answer.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from treeproof.training import RobustGBDTClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = RobustGBDTClassifier(eps=0.1, n_estimators=10).fit(minmax_scale(X), y)
    >>> model.save_xgboost("robust.json")  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        eps: float = 0.0,
        perturbation: Any = None,
        method: Literal["exact", "chen2019"] = "exact",
        leaf_penalty: float | None = 10.0,
        prune: bool = False,
        conflicts: Literal["drop", "keep"] = "drop",
        min_samples_leaf: int = 10,
        n_estimators: int = 100,
        max_depth: int | None = 6,
        learning_rate: float = 0.3,
        reg_lambda: float = 1.0,
        gamma: float = 0.0,
        min_child_weight: float = 1.0,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        tree_method: Literal["hist", "exact"] = "hist",
        max_bin: int = 256,
        feature_scale: Any = None,
        frozen_features: Any = None,
        monotone_constraints: Any = None,
        base_score: float | None = None,
        early_stopping_rounds: int | None = None,
        validation_fraction: float = 0.1,
        eval_metric: Literal["logloss", "error"] = "logloss",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.eps = eps
        self.perturbation = perturbation
        self.method = method
        self.leaf_penalty = leaf_penalty
        self.prune = prune
        self.conflicts = conflicts
        self.min_samples_leaf = min_samples_leaf
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.reg_lambda = reg_lambda
        self.gamma = gamma
        self.min_child_weight = min_child_weight
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.tree_method = tree_method
        self.max_bin = max_bin
        self.feature_scale = feature_scale
        self.frozen_features = frozen_features
        self.monotone_constraints = monotone_constraints
        self.base_score = base_score
        self.early_stopping_rounds = early_stopping_rounds
        self.validation_fraction = validation_fraction
        self.eval_metric = eval_metric
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.progress = progress

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
    ) -> Self:
        """Train the model.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows; NaN is missing. Values are rounded to float32.
        y : array-like of shape (n_rows,)
            Class labels.
        sample_weight : array-like of shape (n_rows,), optional
            Weights of the rows.
        eval_set : sequence of (X, y), optional
            Rows to measure after each round; the last pair decides on early stopping.

        Returns
        -------
        RobustGBDTClassifier
            The fitted estimator.
        """
        settings, sampling = self._settings(), self._sampling()
        random = self._generator()
        rows = self._training_rows(X, y, sample_weight)
        held_out = [self._evaluation_rows(*pair) for pair in eval_set or ()]
        if self.early_stopping_rounds is not None and not held_out:
            rows, validation = self._hold_out(rows, random)
            held_out = [validation]
        if self._is_attacked(rows):
            return self._fit_attacked(rows, held_out, random)
        base_score = self._base_score(rows)
        starts = starting_margins(self.n_outputs_, base_score)
        watched = [WatchedRows.of(part, starts) for part in held_out]
        table = self._table(rows)
        with Growers(table, settings, self._n_threads(), self.n_outputs_) as growers:
            rounds = BoostingRounds(table, rows, sampling, starts, growers)
            trees = self._boost(rounds, watched, random)
        self.n_estimators_ = len(trees) // self.n_outputs_
        return self._finish(trees, base_score)

    def _fit_attacked(
        self, rows: TrainingRows, held_out: list[TrainingRows], random: np.random.Generator
    ) -> Self:
        """Grow the structure, fit its leaves, and compare with a constant answer."""
        fitted = self._structure(rows, held_out, random)
        trained = fitted.trained
        if self.leaf_penalty is not None:
            penalty = check_real("leaf_penalty", self.leaf_penalty, low=0.0, open_low=True)
            trained = fitted.pruned(penalty) if self.prune else fitted.leaves(penalty)
        return self._keep_robust(fitted, trained)

    def _structure(
        self, rows: TrainingRows, held_out: list[TrainingRows], random: np.random.Generator
    ) -> RobustFit:
        """Grow all rounds, or as many as the exact error of held-out rows says."""
        rows, boxes, table = self._attacked_table(rows)
        smallest = check_integer("min_samples_leaf", self.min_samples_leaf, low=1)
        rounds = RobustRounds(
            table,
            replace(rows, weights=self._growing_weights(rows, boxes)),
            self.n_outputs_,
            self._settings()._replace(min_samples_leaf=smallest),
            self._sampling(),
        )
        names = [f"validation_{number}" for number in range(len(held_out))]
        around = [self._boxes(part.X) for part in held_out]

        def next_round() -> dict[str, float]:
            rounds.next_round(random)
            scores = {}
            for name, part, sets in zip(names, held_out, around, strict=True):
                ensemble = to_ensemble(self._trained_trees(rounds.trees, BASE_SCORE))
                scores[name] = robust_error(ensemble, sets, part.targets, part.weights)
            error = float(np.average(rounds.broken(), weights=rows.weights))
            return {"robust_error_at_most": error} | scores

        n_kept = self._run(next_round, names, "robust_error")
        return RobustFit(
            boxes=boxes,
            targets=rows.targets,
            weights=rows.weights,
            trained=self._trained_trees(rounds.trees[: n_kept * self.n_outputs_], BASE_SCORE),
            n_jobs=self._n_threads(),
        )

    def _growing_weights(self, rows: TrainingRows, boxes: RowBoxes) -> NDArray[np.float64]:
        """Weights of rows, 0 for those that trees are grown without."""
        drops = check_choice("conflicts", self.conflicts, ("drop", "keep")) == "drop"
        if not drops or len(rows.targets) > MOST_ROWS:
            return rows.weights
        kept = np.where(find_conflicts(boxes, rows.targets).cover, 0.0, rows.weights)
        has_all = np.all(np.bincount(rows.targets, kept, len(self.classes_)) > 0.0)
        return kept if has_all else rows.weights

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Probabilities of the classes, computed as XGBoost does.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows; NaN is missing.

        Returns
        -------
        float32 ndarray of shape (n_rows, n_classes)
        """
        margins = self.decision_function(X)
        probabilities = np.empty((len(margins), len(self.classes_)), dtype=np.float32)
        if margins.ndim == 1:
            sigmoid_probabilities(margins, probabilities)
        else:
            softmax_probabilities(margins, probabilities)
        return probabilities

    def _settings(self) -> GrowthSettings:
        return GrowthSettings(
            reg_lambda=check_real("reg_lambda", self.reg_lambda, low=0.0),
            gamma=check_real("gamma", self.gamma, low=0.0),
            min_child_weight=check_real("min_child_weight", self.min_child_weight, low=0.0),
            learning_rate=check_real("learning_rate", self.learning_rate, low=0.0, open_low=True),
            max_depth=tree_depth(self.max_depth),
            features_per_node=np.iinfo(np.int64).max,
        )

    def _sampling(self) -> Sampling:
        def share(name: str) -> float:
            return check_real(name, getattr(self, name), low=0.0, high=1.0, open_low=True)

        return Sampling(subsample=share("subsample"), colsample_bytree=share("colsample_bytree"))

    def _base_score(self, rows: TrainingRows) -> float:
        low, high = _SMALLEST_PROBABILITY, 1.0 - _SMALLEST_PROBABILITY
        if self.base_score is not None:
            return float(np.float32(check_real("base_score", self.base_score, low=low, high=high)))
        if self.n_outputs_ > 1:
            return 0.5
        share = float(np.average(rows.targets, weights=rows.weights))
        return float(np.float32(min(max(share, low), high)))

    def _evaluation_rows(self, X: Any, y: Any) -> TrainingRows:
        values = self._rows(X, reset=False)
        labels = np.asarray(y)
        if labels.shape != (len(values),):
            raise InvalidInput(
                f"Labels of an evaluation set must be one per row ({len(values)})."
                f" Got shape {labels.shape}."
            )
        unknown = set(np.unique(labels).tolist()) - set(self.classes_.tolist())
        if unknown:
            raise InvalidInput(
                "Labels of an evaluation set must occur among those of the training rows."
                f" Got {min(unknown)!r}."
            )
        targets = np.searchsorted(self.classes_, labels).astype(np.int64)
        return TrainingRows(values, targets, np.ones(len(values)))

    def _hold_out(
        self, rows: TrainingRows, random: np.random.Generator
    ) -> tuple[TrainingRows, TrainingRows]:
        share = check_real(
            "validation_fraction", self.validation_fraction, low=0.0, high=0.9, open_low=True
        )
        counts = np.bincount(rows.targets)
        counts = counts[counts > 0]
        n_held_out = math.ceil(share * len(rows.targets))
        fewest = min(n_held_out, len(rows.targets) - n_held_out)
        stratify = rows.targets if counts.min() > 1 and fewest >= len(counts) else None
        train, held_out = train_test_split(
            np.arange(len(rows.targets)),
            test_size=share,
            stratify=stratify,
            random_state=int(random.integers(np.iinfo(np.int32).max)),
        )
        return rows.taken(np.sort(train)), rows.taken(np.sort(held_out))

    def _boost(
        self, rounds: BoostingRounds, watched: list[WatchedRows], random: np.random.Generator
    ) -> list[GrownTree]:
        """Run the rounds; return the trees of those that are kept."""
        metric = check_choice("eval_metric", self.eval_metric, ("logloss", "error"))
        names = [f"validation_{number}" for number in range(len(watched))]
        trees: list[GrownTree] = []

        def next_round() -> dict[str, float]:
            grown = rounds.next_round(random)
            trees.extend(grown)
            for part in watched:
                part.add(grown)
            return {name: part.score(metric) for name, part in zip(names, watched, strict=True)}

        return trees[: self._run(next_round, names, metric) * self.n_outputs_]

    def _run(
        self, next_round: Callable[[], dict[str, float]], names: list[str], metric: str
    ) -> int:
        """Run rounds, which return scores, and write them down; returns how many are kept."""
        n_rounds = check_integer("n_estimators", self.n_estimators, low=1)
        verbose = check_integer("verbose", self.verbose, low=0)
        patience = n_rounds
        if self.early_stopping_rounds is not None:
            patience = check_integer("early_stopping_rounds", self.early_stopping_rounds, low=1)
        self.evals_result_: Any = {name: {metric: []} for name in names}
        best_round, best_score, number = 0, np.inf, 0
        for number in range(n_rounds):
            scores = next_round()
            for name in names:
                self.evals_result_[name][metric].append(scores[name])
            if verbose and (number + 1) % verbose == 0:
                _LOG.info("round %d of %d %s", number + 1, n_rounds, scores or "")
            if names and scores[names[-1]] < best_score:
                best_round, best_score = number, scores[names[-1]]
            stop = self.progress is not None and self.progress(number + 1, n_rounds, scores)
            if stop or (names and number - best_round >= patience):
                break
        if self.early_stopping_rounds is None or not names:
            return number + 1
        self.best_iteration_, self.best_score_ = best_round, best_score
        return best_round + 1
