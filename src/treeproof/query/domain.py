"""`Domain`: which rows there can be; integers, groups, categories, what may go missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.model import evaluate
from treeproof.model.ensemble import CATEGORICAL, Ensemble, FloatArray
from treeproof.query.description import plain
from treeproof.query.names import feature_number, numbers_of
from treeproof.query.rules import Rule, read_rules

Features = int | str | Sequence[int | str]
"""A feature by name or number, or several of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Which rows there can be; a change leads to one of these, or it is none.

    Parameters
    ----------
    integer : features, optional
        Features whose values are whole numbers, by name or number.
    values : dict, optional
        The only values that a feature may take, by name or number of the feature.
    ranges : dict, optional
        Least and largest value of features, by name or number; in addition to bounds of the
        perturbation.
    one_hot : sequence of groups of features, optional
        Exactly one feature of each group is 1 and all others are 0. A group is one feature to
        every cost.
    at_most_one : sequence of groups of features, optional
        The same, but all features of the group may be 0.
    categorical : features or dict, optional
        Features whose category may change: to any that the model knows, or as a dict says. An entry
        of it is a list of the categories that there are, or a dict of transitions, from each
        category to a list of others. Categorical features that are not named keep their category.
    may_miss, may_fill : features, optional
        Features that may go missing, and features that may get a value where they are missing.
    rules : str or sequence of str, optional
        Linear relations between features and implications, such as ``"open <= total + 1"`` and
        ``"loans > 0 => income > 0"``. Names with blanks are quoted, ``x[3]`` is feature 3, and rows
        that miss one of the features obey.
    allow_broken_rows : bool
        Whether rows that are not of this domain are accepted. Such a row stays as it is where
        nothing changes; what changes is of the domain. A `Box` holds rows of the domain only: its
        numbers and groups must be of it, whatever the row itself has.
    """

    integer: Features = ()
    values: Mapping[Any, Any] = field(default_factory=dict)
    ranges: Mapping[Any, Any] = field(default_factory=dict)
    one_hot: Sequence[Sequence[int | str]] = ()
    at_most_one: Sequence[Sequence[int | str]] = ()
    categorical: Features | Mapping[Any, Any] = ()
    may_miss: Features = ()
    may_fill: Features = ()
    rules: str | Sequence[str] = ()
    allow_broken_rows: bool = False

    @classmethod
    def from_frame(cls, X: Any) -> Domain:
        """Guess the domain of a data frame, to be printed, corrected and passed on.

        Parameters
        ----------
        X : data frame
            Rows, of pandas, polars or pyarrow; the more, the better the guess.

        Returns
        -------
        Domain
            Columns of whole numbers are integers, those of 0 and 1 have these values, unless they
            are a group: columns that share the start of their names and of which exactly one is 1
            in every row, or at most one and mostly one. Texts and categories are categorical.
            Ranges are those of the rows. Nothing may go missing or be filled in.
        """
        from treeproof.query.frames import guessed_domain

        return cls(**guessed_domain(X))

    def __str__(self) -> str:
        """What the domain says, as Python that gives it again; one part in a line."""
        lines = []
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, str) or not isinstance(value, Sequence | Mapping):
                is_said = value is not False and value != ()
            else:
                is_said = len(value) > 0
            if is_said:
                lines.append(f"    {part.name}={_listing(value)},")
        return "\n".join(["Domain(", *lines, ")"]) if lines else "Domain()"


def _listing(value: Any) -> str:
    """A value as Python; what is long has a line for each entry."""
    text = repr(value)
    if len(text) <= _LINE or isinstance(value, str) or not isinstance(value, Sequence | Mapping):
        return text
    if isinstance(value, Mapping):
        entries, ends = [f"{name!r}: {item!r}" for name, item in value.items()], "{}"
    else:
        entries, ends = [repr(item) for item in value], "[]"
    return "\n        ".join([ends[0], *(f"{entry}," for entry in entries)]) + f"\n    {ends[1]}"


_LINE = 88
"""Characters of a part of a printed domain that stay on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTypes:
    """A domain in numbers, for the features of one model."""

    integer: NDArray[np.bool_]  # (n_features,)
    values: dict[int, FloatArray]  # by feature: sorted distinct values
    low: FloatArray  # (n_features,) least values
    high: FloatArray  # (n_features,) largest values
    groups: tuple[tuple[tuple[int, ...], bool], ...]  # features, and whether exactly one is 1
    # By feature that may change its category: codes that there are, or codes after each code.
    may_become: dict[int, FloatArray | dict[float, FloatArray]]
    may_miss: NDArray[np.bool_]  # (n_features,)
    may_fill: NDArray[np.bool_]  # (n_features,)
    allow_broken_rows: bool
    rules: tuple[Rule, ...] = ()

    def words(self) -> dict[str, Any]:
        """The domain as plain data, with features by number and categories by code."""
        return {
            "integer": np.flatnonzero(self.integer).tolist(),
            "values": [[f, values.tolist()] for f, values in self.values.items()],
            "ranges": [
                [feature, plain(self.low[feature]), plain(self.high[feature])]
                for feature in np.flatnonzero(
                    ~np.isneginf(self.low) | ~np.isposinf(self.high)
                ).tolist()
            ],
            "groups": [[list(columns), exactly] for columns, exactly in self.groups],
            "categorical": [
                [
                    feature,
                    [[float(code), np.asarray(after).tolist()] for code, after in codes.items()],
                ]
                if isinstance(codes, dict)
                else [feature, codes.tolist()]
                for feature, codes in self.may_become.items()
            ],
            "may_miss": np.flatnonzero(self.may_miss).tolist(),
            "may_fill": np.flatnonzero(self.may_fill).tolist(),
            "allow_broken_rows": self.allow_broken_rows,
            # An equation is two rules, and written once.
            **({"rules": list({rule.text: 0 for rule in self.rules})} if self.rules else {}),
        }


def column_types(domain: Domain | None, ensemble: Ensemble) -> ColumnTypes:
    """Return a domain in numbers, or refuse what contradicts itself or the model."""
    if domain is None:
        domain = Domain()
    if not isinstance(domain, Domain):
        raise InvalidInput(f"'domain' must be a Domain. Got {domain!r}.")
    groups = tuple(
        (columns, name == "one_hot")
        for name in ("one_hot", "at_most_one")
        for columns in _groups(name, getattr(domain, name), ensemble)
    )
    low, high = _ranges(domain.ranges, ensemble)
    types = ColumnTypes(
        low=low,
        high=high,
        integer=_mask("integer", domain.integer, ensemble),
        values=_values(domain.values, ensemble),
        groups=groups,
        may_become=_transitions(domain.categorical, ensemble),
        may_miss=_mask("may_miss", domain.may_miss, ensemble),
        may_fill=_mask("may_fill", domain.may_fill, ensemble),
        allow_broken_rows=bool(domain.allow_broken_rows),
        rules=read_rules(domain.rules, ensemble),
    )
    _refuse_contradictions(types, ensemble)
    return types


def _refuse_contradictions(types: ColumnTypes, ensemble: Ensemble) -> None:
    roles: dict[int, str] = {}
    columns = [(f, "one_hot") for group, _ in types.groups for f in group]
    columns += [(f, "categorical") for f in types.may_become]
    columns += [(int(f), "integer") for f in np.flatnonzero(types.integer)]
    for feature, role in columns:
        if feature in roles:
            raise InvalidInput(
                "A feature of a Domain must be in one group, or categorical, or integer."
                f" Got {feature_name(ensemble, feature)} as {roles[feature]} and as {role}."
            )
        roles[feature] = role
    is_code = ensemble.is_categorical
    for feature in (*types.values, *np.flatnonzero(types.integer).tolist()):
        if is_code[feature] or roles.get(feature, "integer") != "integer":
            raise InvalidInput(
                "'integer' and 'values' of Domain are for features that are numbers."
                f" Got {feature_name(ensemble, feature)}; list its categories in 'categorical'."
            )
    for feature, values in types.values.items():
        if types.integer[feature] and np.any(values != np.floor(values)):
            raise InvalidInput(
                f"'values' of Domain must be whole for {feature_name(ensemble, feature)}, which is"
                f" an integer. Got {values.tolist()}."
            )
    _refuse_empty_ranges(types, ensemble)
    for feature in types.may_become:
        if (types.low[feature], types.high[feature]) != (-np.inf, np.inf):
            raise InvalidInput(
                "'ranges' of Domain must be about numbers."
                f" Got {feature_name(ensemble, feature)}; list the codes that there are in"
                " 'categorical'."
            )
    for rule in types.rules:
        for feature in rule.features:
            changes = types.may_miss[feature] or types.may_fill[feature]
            if changes or is_code[feature] or roles.get(feature) == "categorical":
                raise UnsupportedQuery(
                    f"The rule {rule.text!r} must be about numbers and groups that neither go"
                    f" missing nor are filled in. Got {feature_name(ensemble, feature)}."
                )
    for name in ("may_miss", "may_fill"):
        for feature in np.flatnonzero(getattr(types, name)).tolist():
            cannot = not ensemble.missing_allowed or feature in ensemble.required
            if cannot or roles.get(feature) == "one_hot":
                raise InvalidInput(
                    f"'{name}' of Domain must name features that the model accepts as missing, and"
                    f" none of a group. Got {feature_name(ensemble, feature)}."
                )


def _refuse_empty_ranges(types: ColumnTypes, ensemble: Ensemble) -> None:
    """Refuse ranges without a value that a feature may take."""
    for feature in np.flatnonzero(~np.isneginf(types.low) | ~np.isposinf(types.high)).tolist():
        low, high = types.low[feature], types.high[feature]
        values = types.values.get(feature)
        is_empty = types.integer[feature] and np.ceil(low) > np.floor(high)
        if values is not None:
            is_empty = not np.any((low <= values) & (values <= high))
        if is_empty:
            kind = "whole number" if values is None else "listed value"
            raise InvalidInput(
                f"'ranges' of Domain must hold a {kind} of {feature_name(ensemble, feature)}."
                f" Got {low} to {high}."
            )


def feature_name(ensemble: Ensemble, *features: int) -> str:
    """A feature in messages, or several."""
    names = ensemble.feature_names
    return ", ".join(repr(names[f]) if names else f"feature {f}" for f in features)


def _by_number(name: str, given: Any, ensemble: Ensemble) -> Iterator[tuple[Any, int, Any]]:
    """Entries of a dict by feature: the feature as it is given, its number, and what is said."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"'{name}' of Domain must be a dict. Got {given!r}.")
    for feature, said in given.items():
        yield feature, feature_number(feature, ensemble.n_features, ensemble.feature_names), said


def _numbers(name: str, given: Any, ensemble: Ensemble) -> list[int]:
    if isinstance(given, str | int | np.integer):
        given = (given,)
    if not isinstance(given, Sequence | np.ndarray | set | frozenset):
        raise InvalidInput(f"'{name}' of Domain must list features. Got {given!r}.")
    return [feature_number(f, ensemble.n_features, ensemble.feature_names) for f in given]


def _mask(name: str, given: Any, ensemble: Ensemble) -> NDArray[np.bool_]:
    mask = np.zeros(ensemble.n_features, dtype=bool)
    mask[_numbers(name, given, ensemble)] = True
    return mask


def _groups(name: str, given: Any, ensemble: Ensemble) -> list[tuple[int, ...]]:
    rule = f"'{name}' of Domain must list groups of features, such as [['red', 'green']]"
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput(f"{rule}. Got {given!r}.")
    for group in given:
        if isinstance(group, str) or not isinstance(group, Sequence | np.ndarray) or not len(group):
            raise InvalidInput(f"{rule}. Got the group {group!r}.")
    return [tuple(_numbers(name, group, ensemble)) for group in given]


def _listed(name: str, feature: Any, given: Any) -> FloatArray:
    """Numbers that a dict of a domain lists for a feature."""
    what = f"'{name}' of Domain for {feature!r}"
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidInput(f"{what} must be a list of numbers. Got {given!r}.")
    return numbers_of(what, list(given))


def _values(given: Mapping[Any, Any], ensemble: Ensemble) -> dict[int, FloatArray]:
    found = {}
    for feature, number, values in _by_number("values", given, ensemble):
        array = _listed("values", feature, values)
        if array.ndim != 1 or len(array) == 0 or not np.all(np.isfinite(array)):
            raise InvalidInput(
                f"'values' of Domain for {feature!r} must be a list of finite numbers."
                f" Got {values!r}."
            )
        # Rounded as rows are, so that a row's own value is one of them.
        found[number] = np.unique(evaluate.cast_rows(ensemble, array))
    return found


def _ranges(given: Mapping[Any, Any], ensemble: Ensemble) -> tuple[FloatArray, FloatArray]:
    low = np.full(ensemble.n_features, -np.inf)
    high = np.full(ensemble.n_features, np.inf)
    for feature, number, ends in _by_number("ranges", given, ensemble):
        array = _listed("ranges", feature, ends)
        if array.shape != (2,) or not array[0] <= array[1]:
            raise InvalidInput(
                f"'ranges' of Domain for {feature!r} must be (low, high) with low <= high."
                f" Got {ends!r}."
            )
        low[number], high[number] = evaluate.cast_rows(ensemble, array)
    return low, high


def _transitions(given: Any, ensemble: Ensemble) -> dict[int, FloatArray | dict[float, FloatArray]]:
    if not isinstance(given, Mapping):
        return {
            number: known_codes(ensemble, number, must_tell=True)
            for number in _numbers("categorical", given, ensemble)
        }
    found: dict[int, FloatArray | dict[float, FloatArray]] = {}
    for _, number, said in _by_number("categorical", given, ensemble):
        if said is None or said == "all":
            found[number] = known_codes(ensemble, number, must_tell=True)
        elif isinstance(said, Mapping):
            found[number] = {
                float(codes_of([before], ensemble, number)[0]): codes_of(after, ensemble, number)
                for before, after in said.items()
            }
        else:
            found[number] = codes_of(said, ensemble, number)
    return found


def known_codes(ensemble: Ensemble, feature: int, *, must_tell: bool = False) -> FloatArray:
    """Codes of the categories of a feature that the model knows."""
    named = ensemble.categories.get(feature)
    if named:
        codes = np.arange(len(named), dtype=np.float64)
        if isinstance(named[-1], float) and np.isnan(named[-1]):
            codes = codes[:-1]
        return codes
    if ensemble.required.get(feature):
        return np.array(sorted(ensemble.required[feature]), dtype=np.float64)
    if _is_unread(ensemble, feature):
        return np.array([0.0, 1.0])
    trees = ensemble.trees
    testing = (trees.feature == feature) & ((trees.flags & CATEGORICAL) > 0)
    if must_tell and not testing.any():
        raise InvalidInput(
            "'categorical' of Domain must list the categories of"
            f" {feature_name(ensemble, feature)}, since the model does not tell them, such as"
            " categorical={'colour': [0, 1, 2]}."
        )
    return trees.categories_in(np.unique(trees.category_set[testing])).astype(np.float64)


def _is_unread(ensemble: Ensemble, feature: int) -> bool:
    """Whether nothing looks at a column, such as one that a pipeline drops.

    Sound: it may hold anything, and one category is to the model as good as another; they are
    numbered as they are given.
    """
    return ensemble.categories.get(feature, None) == ()


def codes_of(given: Any, ensemble: Ensemble, feature: int) -> FloatArray:
    """Codes of categories that are given by name, or by code where the model has no names."""
    named = list(ensemble.categories.get(feature, ()))
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        given = [given]
    if _is_unread(ensemble, feature):
        return np.arange(len(given), dtype=np.float64)
    codes = []
    for category in given:
        if category in named:
            codes.append(float(named.index(category)))
            continue
        try:
            code = float("nan") if named else float(category)
        except (TypeError, ValueError):
            code = float("nan")
        if not (code >= 0.0 and code == np.floor(code)):
            known = f" Its categories are {named}." if named else " The model has codes, from 0."
            raise InvalidInput(
                "'categorical' of Domain must name categories of"
                f" {feature_name(ensemble, feature)}. Got {category!r}.{known}"
            )
        codes.append(code)
    return np.unique(np.array(codes, dtype=np.float64))
