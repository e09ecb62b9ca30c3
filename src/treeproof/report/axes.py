"""Axes for radii: scales, round numbers, ticks."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_SKEWED = 12.0
"""From this ratio of the largest to the median radius on, a linear axis would hide most rows."""

_STEPS = (1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Radii from 0 to `high`: linear, or linear near 0 and logarithmic beyond `bend`."""

    high: float
    bend: float = math.inf

    def position(self, radius: float) -> float:
        """Place of a radius, 0 at the left and 1 at the right end; beyond both it is cut off."""
        if math.isinf(self.bend):
            place = radius / self.high
        else:
            place = math.asinh(radius / self.bend) / math.asinh(self.high / self.bend)
        return min(max(place, 0.0), 1.0)

    def radius(self, place: float) -> float:
        """Radius at a place; the inverse of `position`."""
        if math.isinf(self.bend):
            return place * self.high
        return self.bend * math.sinh(place * math.asinh(self.high / self.bend))

    def ticks(self, gap: float) -> list[float]:
        """Round radii that lie at least `gap` apart, from 0 on."""
        if math.isinf(self.bend):
            step = round_number(self.high * max(gap, 0.05), up=True)
            return [step * k for k in range(int(self.high / step * (1 + 1e-9)) + 1)]
        ticks, last = [0.0], 0.0
        for exponent in range(
            math.floor(math.log10(self.bend)) - 1, math.ceil(math.log10(self.high)) + 1
        ):
            for step in _STEPS:
                tick = step * 10.0**exponent
                place = self.position(tick)
                if tick <= self.high and place - last >= gap:
                    ticks.append(tick)
                    last = place
        return ticks


def axis_for(radii: FloatArray) -> Axis:
    """Choose an axis that shows most of the given radii well."""
    positive = radii[np.isfinite(radii) & (radii > 0.0)]
    if len(positive) == 0:
        return Axis(high=1.0)
    # The few largest radii may lie far out; the curve is flat there.
    largest = float(np.quantile(positive, 0.995))
    if largest > _SKEWED * float(np.median(positive)):
        return Axis(high=largest * 1.02, bend=float(np.quantile(positive, 0.25)))
    return Axis(high=largest * 1.02)


def round_number(value: float, *, up: bool = False) -> float:
    """Return the nearest 1, 2 or 5 times a power of ten; with `up` one that is not smaller."""
    if value <= 0.0 or not math.isfinite(value):
        return 1.0
    exponent = math.floor(math.log10(value))
    candidates = [step * 10.0**k for k in (exponent, exponent + 1) for step in _STEPS]
    if up:
        candidates = [c for c in candidates if c >= value * (1.0 - 1e-9)]
        return candidates[0]
    return min(candidates, key=lambda c: abs(math.log(c / value)))
