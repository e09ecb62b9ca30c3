"""Rows that are images, drawn as images: small PNG files inside the page."""

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput

FloatArray = NDArray[np.float64]
Bytes = NDArray[np.uint8]


def parse_shape(text: str) -> tuple[int, int]:
    """Read a height and a width, such as 8x8."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InvalidInput(f"The shape of images must be HxW, such as 28x28. Got {text!r}.")
    return int(parts[0]), int(parts[1])


def check_shape(shape: tuple[int, int], n_features: int) -> None:
    """Refuse shapes that do not have one pixel per feature."""
    height, width = shape
    if height < 1 or width < 1 or height * width != n_features:
        raise InvalidInput(
            f"'shape' must have as many pixels as there are features ({n_features})."
            f" Got {height}x{width}."
        )


def grey_levels(values: FloatArray, low: float, high: float) -> Bytes:
    """Values as grey levels, `low` black and `high` white; missing values are black."""
    span = high - low if high > low else 1.0
    with np.errstate(invalid="ignore"):
        levels = np.clip((values - low) / span, 0.0, 1.0) * 255.0
    return np.asarray(np.nan_to_num(np.round(levels), nan=0.0), dtype=np.uint8)


def grey_image(values: FloatArray, shape: tuple[int, int], low: float, high: float) -> str:
    """An image in grey as a data address."""
    grey = grey_levels(values, low, high).reshape(shape)
    return data_address(np.repeat(grey[:, :, None], 3, axis=2))


def change_image(change: FloatArray, shape: tuple[int, int]) -> str:
    """Where a witness differs: blue where values fall, orange where they rise, grey elsewhere."""
    largest = float(np.nanmax(np.abs(change))) if np.any(change != 0.0) else 1.0
    strength = np.nan_to_num(change / (largest or 1.0)).reshape(shape)[:, :, None]
    still, up, down = (np.array(c, dtype=np.float64) for c in _CHANGE_COLOURS)
    # Even the smallest change must be seen, so colours start at a third of their strength.
    weight = np.where(strength == 0.0, 0.0, 0.35 + 0.65 * np.abs(strength))
    pixels = still + weight * (np.where(strength > 0.0, up, down) - still)
    return data_address(np.asarray(np.round(pixels), dtype=np.uint8))


_CHANGE_COLOURS = ((232, 232, 228), (214, 90, 20), (30, 96, 190))


def set_image(
    values: FloatArray, shape: tuple[int, int], low: float, high: float, is_in: NDArray[np.bool_]
) -> str:
    """An image in which the pixels of a set have colour, and all others are pale."""
    grey = grey_levels(values, low, high).reshape(shape)[:, :, None] / 255.0
    dark, bright, pale = (np.array(c, dtype=np.float64) for c in _SET_COLOURS)
    inside = dark + grey * (bright - dark)
    pixels = np.where(is_in.reshape(shape)[:, :, None], inside, pale - 40.0 * (1.0 - grey))
    return data_address(np.asarray(np.round(pixels), dtype=np.uint8))


_SET_COLOURS = ((8, 78, 84), (250, 178, 66), (242, 242, 238))


def heat_image(strength: FloatArray, shape: tuple[int, int]) -> str:
    """A map of values from 0 (pale) to the largest (dark teal)."""
    largest = float(strength.max()) if strength.max() > 0.0 else 1.0
    weight = np.sqrt(strength / largest).reshape(shape)[:, :, None]
    stops = np.array([(240, 241, 236), (120, 190, 175), (15, 110, 110), (8, 48, 66)], dtype=float)
    place = weight * (len(stops) - 1)
    index = np.minimum(place.astype(np.int64), len(stops) - 2)
    first, second = stops[index[:, :, 0]], stops[index[:, :, 0] + 1]
    pixels = first + (place - index) * (second - first)
    return data_address(np.asarray(np.round(pixels), dtype=np.uint8))


def data_address(pixels: Bytes) -> str:
    """Pixels (height, width, 3) as the address of a PNG file inside the page."""
    height, width = pixels.shape[:2]
    # Each line of a PNG starts with the number of its filter; 0 is none.
    lines = np.zeros((height, 1 + width * 3), dtype=np.uint8)
    lines[:, 1:] = pixels.reshape(height, width * 3)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
        + _chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(parts).decode("ascii")


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
