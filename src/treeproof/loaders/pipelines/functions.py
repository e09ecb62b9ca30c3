"""Steps that apply functions of mathematics: logarithms, powers, quantiles.

Roots, roundings and interpolations between two points are monotone in floats, because each of their
operations is. Exponentials and logarithms are monotone only up to their last bits. For them a split
is searched like any other, and then every float is tried at which the function, being right to some
units in the last place, might still be on the other side of the split.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.pipelines.flow import Column, Flow
from treeproof.loaders.pipelines.rows import quietly
from treeproof.loaders.pipelines.sides import LARGEST, Apply, Output
from treeproof.model.ensemble import FloatArray

_UNITS = 8.0
"""Error of NumPy's elementary functions, in units in the last place: documented are up to 4."""

_QUANTILE_UNITS = 32.0
"""The same for the quantiles of the normal distribution, whose documented error is 1e-15."""

_AFTER = np.inf
_TINY = 5e-324

Derivative = Callable[[FloatArray], FloatArray]


def _doubt(
    derivative: Derivative, units: Callable[[FloatArray], Any] | float = _UNITS
) -> Callable[[FloatArray, FloatArray], FloatArray]:
    """Number of floats around x at which a computed f may be on the wrong side of f(x) = cut.

    Sound: a wrong side needs |f - cut| below the error, which is a number of steps of the floats
    at the cut; divided by the derivative it is a distance, and by the steps of the floats at x a
    number of floats. The factor 2 covers how steps and derivative change on the way, as long as
    the distance is small, which `Output.doubt` is required to be.
    """

    def floats(x: FloatArray, cut: FloatArray) -> FloatArray:
        error = units(x) if callable(units) else units
        with np.errstate(all="ignore"):
            distance = error * np.spacing(np.abs(cut)) / np.abs(derivative(x))
            return np.asarray(2.0 * distance / np.spacing(np.abs(x)) + 2.0 * error)

    return floats


@dataclass(frozen=True, slots=True)
class Function:
    """A function of NumPy that is monotone, or NaN, on each of its pieces."""

    function: Any
    knots: tuple[float, ...] = ()
    derivative: Derivative | None = None
    """Given where the function is monotone only up to its last bits."""
    is_plain: bool = False

    def add_steps(self, flow: Flow, name: str, columns: list[Column], apply: Apply) -> list[Column]:
        """Columns that the function makes."""
        doubt = None if self.derivative is None else _doubt(self.derivative)
        knots = np.array(self.knots, dtype=np.float64)
        outputs = [
            Output(number, knots, is_plain=self.is_plain, doubt=doubt)
            for number in range(len(columns))
        ]
        return flow.add_step(name, apply, columns, outputs)


_LOG_KNOTS = (0.0, _TINY)
_LOG1P_KNOTS = (-1.0, float(np.nextafter(-1.0, _AFTER)))

FUNCTIONS = (
    Function(np.log, _LOG_KNOTS, lambda x: 1.0 / x),
    Function(np.log1p, _LOG1P_KNOTS, lambda x: 1.0 / (1.0 + x)),
    Function(np.log2, _LOG_KNOTS, lambda x: 1.0 / (x * np.log(2.0))),
    Function(np.log10, _LOG_KNOTS, lambda x: 1.0 / (x * np.log(10.0))),
    Function(np.exp, (), np.exp),
    Function(np.expm1, (), np.exp),
    Function(np.arcsinh, (), lambda x: 1.0 / np.hypot(1.0, x)),
    Function(np.tanh, (), lambda x: 1.0 / np.cosh(x) ** 2),
    Function(np.arctan, (), lambda x: 1.0 / (1.0 + x * x)),
    Function(np.cbrt, (), lambda x: 1.0 / (3.0 * np.cbrt(x) ** 2)),
    # Correctly rounded, hence monotone on each piece.
    Function(np.sqrt, (0.0,)),
    Function(np.square, (0.0,)),
    Function(np.abs, (0.0,)),
    Function(np.negative),
    Function(np.sign),
    Function(np.floor),
    Function(np.ceil),
    Function(np.rint),
    Function(np.trunc),
    Function(np.nan_to_num, is_plain=True),
)


def power_steps(
    flow: Flow, name: str, step: Any, columns: list[Column], apply: Apply
) -> list[Column]:
    """PowerTransformer: Yeo-Johnson or Box-Cox, then the scaler inside it."""
    lambdas = np.asarray(step.lambdas_, dtype=np.float64)
    if lambdas.shape != (len(columns),) or not np.isfinite(lambdas).all():
        raise BrokenModelFile(f"{name} must have one finite power per column.")
    if step.method not in ("yeo-johnson", "box-cox"):
        raise BrokenModelFile(f"{name} has the unknown method {step.method!r}.")
    bare = copy.copy(step)
    bare.standardize = False
    is_yeo = step.method == "yeo-johnson"
    outputs = [
        Output(
            number,
            np.array([0.0] if is_yeo else []),
            low=-LARGEST if is_yeo else _TINY,
            doubt=_yeo_johnson_doubt(power) if is_yeo else _box_cox_doubt(power),
        )
        for number, power in enumerate(lambdas.tolist())
    ]
    columns = flow.add_step(name, _silent(bare.transform), columns, outputs)
    if not step.standardize:
        return columns
    scaler = step._scaler
    for attribute in ("mean_", "scale_"):
        values = np.asarray(getattr(scaler, attribute), dtype=np.float64)
        if values.shape != (len(columns),) or not np.isfinite(values).all():
            raise BrokenModelFile(f"{name} must have a finite mean and scale per column.")
    # Sound: a difference and a quotient are monotone in floats.
    scaled = [Output(number, np.zeros(0)) for number in range(len(columns))]
    return flow.add_step(name, _silent(scaler.transform), columns, scaled)


def _yeo_johnson_doubt(power: float) -> Callable[[FloatArray, FloatArray], FloatArray]:
    """``expm1(p * log1p(|x|)) / p`` with p the power, or 2 - power below zero."""

    def exponent(x: FloatArray) -> FloatArray:
        return np.where(x >= 0.0, power, 2.0 - power)

    return _doubt(
        lambda x: np.exp((exponent(x) - 1.0) * np.log1p(np.abs(x))),
        lambda x: _UNITS * (2.0 + _condition(exponent(x) * np.log1p(np.abs(x)))),
    )


def _box_cox_doubt(power: float) -> Callable[[FloatArray, FloatArray], FloatArray]:
    """``expm1(p * log(x)) / p``."""
    return _doubt(
        lambda x: np.exp((power - 1.0) * np.log(x)),
        lambda x: _UNITS * (2.0 + _condition(power * np.log(x))),
    )


def _condition(w: FloatArray) -> FloatArray:
    """How much a relative error of w grows in expm1(w)."""
    with np.errstate(all="ignore"):
        return np.where(np.abs(w) < 1e-8, 1.0, np.abs(w / -np.expm1(-w)))


_BOUNDS = 1e-7  # scikit-learn's own distance from the ends


def quantile_steps(
    flow: Flow, name: str, step: Any, columns: list[Column], apply: Apply
) -> list[Column]:
    """QuantileTransformer: interpolation between quantiles, then the normal distribution's.

    Sound: between two quantiles the two interpolations are a product and a sum each, and their
    mean is one more sum and a half; all are monotone in floats.
    """
    quantiles = np.asarray(step.quantiles_, dtype=np.float64)
    references = np.asarray(step.references_, dtype=np.float64)
    if quantiles.shape != (len(references), len(columns)) or len(references) < 1:
        raise BrokenModelFile(f"{name} must have {len(references)} quantiles for every column.")
    if not np.isfinite(quantiles).all() or np.any(np.diff(quantiles, axis=0) < 0):
        raise BrokenModelFile(f"{name} must have finite, rising quantiles.")
    if step.output_distribution == "uniform":
        outputs = [
            Output(number, _with_next(quantiles[:, number])) for number in range(len(columns))
        ]
        return flow.add_step(name, apply, columns, outputs)
    if step.output_distribution != "normal":
        raise BrokenModelFile(
            f"{name} has the unknown output_distribution {step.output_distribution!r}."
        )
    return _normal_steps(flow, name, columns, apply, (quantiles, references))


def _with_next(numbers: FloatArray) -> FloatArray:
    """Numbers that are pieces of their own: each, and the float after it."""
    return np.concatenate([numbers, np.nextafter(numbers, _AFTER)])


def _normal_steps(
    flow: Flow,
    name: str,
    columns: list[Column],
    apply: Apply,
    fitted: tuple[FloatArray, FloatArray],
) -> list[Column]:
    """Two steps in place of one: what scikit-learn computes before the normal quantiles, and they.

    The two must give what the fitted transformer gives, bit for bit, on a sample of numbers.
    """
    quantiles, references = fitted
    _require_same(name, quantiles, references, apply)
    # Sound: numbers near the ends become 0 and 1, which is a rise wherever it happens.
    outputs = [Output(number, _with_next(own)) for number, own in enumerate(quantiles.T)]
    middle = flow.add_step(
        name, lambda rows: _interpolated(rows, quantiles, references), columns, outputs
    )
    normal = [
        Output(number, np.array([_TINY, 1.0]), low=0.0, high=1.0, doubt=_NORMAL_DOUBT)
        for number in range(len(columns))
    ]
    return flow.add_step(name, _normal_quantiles, middle, normal)


def _interpolated(
    rows: NDArray[Any], quantiles: FloatArray, references: FloatArray
) -> NDArray[Any]:
    result = np.array(rows, dtype=np.float64)
    for number, own in enumerate(quantiles.T):
        x = result[:, number].copy()
        with np.errstate(invalid="ignore"):
            is_low, is_high = x - _BOUNDS < own[0], x + _BOUNDS > own[-1]
        known = ~np.isnan(x)
        up = np.interp(x[known], own, references)
        down = np.interp(-x[known], -own[::-1], -references[::-1])
        result[known, number] = 0.5 * (up - down)
        result[is_high, number] = 1.0
        result[is_low, number] = 0.0
    return result


def _normal_quantiles(rows: NDArray[Any]) -> NDArray[Any]:
    from scipy import stats

    with np.errstate(all="ignore"):
        low = stats.norm.ppf(_BOUNDS - np.spacing(1))
        high = stats.norm.ppf(1 - (_BOUNDS - np.spacing(1)))
        return np.clip(stats.norm.ppf(rows), low, high)


def _normal_derivative(y: FloatArray) -> FloatArray:
    from scipy import stats

    return np.sqrt(2.0 * np.pi) * np.exp(stats.norm.ppf(y) ** 2 / 2.0)


_NORMAL_DOUBT = _doubt(_normal_derivative, _QUANTILE_UNITS)


def _require_same(name: str, quantiles: FloatArray, references: FloatArray, apply: Apply) -> None:
    random = np.random.default_rng(0)
    low, high = quantiles[0], quantiles[-1]
    margin = 0.1 * (high - low) + 1e-6
    rows = random.uniform(low - margin, high + margin, (2_000, len(low)))
    rows[::4] = quantiles[random.integers(0, len(quantiles), len(rows[::4]))]
    rows[1::4] = np.nextafter(rows[::4], _AFTER)
    ours = _normal_quantiles(_interpolated(rows, quantiles, references))
    if not np.array_equal(ours, apply(rows)):
        raise UnsupportedModel(
            f"{name} computes normal quantiles in a way that this version does not know."
            " Use output_distribution='uniform'."
        )


def _silent(transform: Callable[[Any], Any]) -> Apply:
    def apply(matrix: NDArray[Any]) -> NDArray[Any]:
        with quietly():
            return np.asarray(transform(matrix), dtype=np.float64)

    return apply
