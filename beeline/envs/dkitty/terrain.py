"""The ground under the D'Kitty: ROBEL's random height field, and our reading of the paper's four real terrains.

Surfaces are arrays of heights in metres, `[row, column]`, row 0 at the smallest y. All random numbers come from the
generator that is handed in.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

Draw = np.random.Generator
Range = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Grid:
    """Vertices of a height field: their numbers, half of its sides, and y of its centre (x is 0)."""

    columns: int
    rows: int
    half_x: float
    half_y: float
    centre_y: float = 0.0

    @property
    def cell(self) -> float:
        """Distance of two vertices."""
        return 2 * self.half_x / (self.columns - 1)

    def vertices(self) -> tuple[np.ndarray, np.ndarray]:
        """x of every column and y of every row."""
        x = np.linspace(-self.half_x, self.half_x, self.columns)
        return x, self.centre_y + np.linspace(-self.half_y, self.half_y, self.rows)

    def highest(self, heights: np.ndarray, x: float, y: float, reach: float) -> float:
        """The highest vertex of the cells that a square of ±reach around a point touches."""
        columns = self._touched(x + self.half_x, reach, self.columns)
        rows = self._touched(y - self.centre_y + self.half_y, reach, self.rows)
        return float(heights[rows, columns].max())

    def _touched(self, at: float, reach: float, count: int) -> slice:
        first = math.floor((at - reach) / self.cell)
        return slice(max(first, 0), min(math.ceil((at + reach) / self.cell), count - 1) + 1)

    def holds(self, x: float, y: float) -> bool:
        """Whether a point lies over the field."""
        return abs(x) <= self.half_x and abs(y - self.centre_y) <= self.half_y


RANDOM_FIELD = Grid(120, 120, 4.5, 4.5)
RANDOM_FIELD_Z = -0.005  # below the floor, so that it is hidden where it is flat
PATH = Grid(121, 241, 1.2, 2.4, 1.6)


def white(draw: Draw, height: float) -> np.ndarray:
    """ROBEL's field: every vertex by itself, U(0, height)."""
    return draw.uniform(0.0, height, (RANDOM_FIELD.rows, RANDOM_FIELD.columns))


def rough_stone(draw: Draw) -> np.ndarray:
    """Paving blocks of 0.2 by 0.1 m in running bond: steps of millimetres, tilts of a degree, joints one vertex wide."""
    x, y = PATH.vertices()
    column, row = np.arange(PATH.columns) + draw.integers(10), np.arange(PATH.rows) + draw.integers(5)
    course = row // 5
    brick = (column[None] + 5 * (course[:, None] % 2)) // 10  # every second course is shifted by half a block
    blocks = course.max() + 1, int(brick.max()) + 1
    at = course[:, None], brick
    level = _stones(draw, blocks, 0.003, math.radians(1), at, x[None], y[:, None])
    joint = (row[:, None] % 5 == 0) | ((column[None] + 5 * (course[:, None] % 2)) % 10 == 0)
    return np.where(joint, -0.006, level) + smooth(draw, 0.0008, 0.02)


def uphill_stone(draw: Draw, degrees: float = 8.0) -> np.ndarray:
    """Irregular flagstones of about 0.27 m with joints of 2 cm, on a ramp that begins at y = 0.1."""
    x, y = PATH.vertices()
    near, second, places = _voronoi(draw, x, y, 0.27)
    shape = places.shape[:2]
    level = _stones(draw, shape, 0.006, math.radians(2), near, x[None], y[:, None])
    to_near, to_second = (_squared(places[index], x, y) for index in (near, second))
    between = np.linalg.norm(places[near] - places[second], axis=-1)
    joint = (to_second - to_near) / (2 * between) < 0.01  # distance to the line between two stones
    surface = np.where(joint, -0.012, level) + smooth(draw, 0.0015, 0.03)
    return surface + ramp(y, degrees)[:, None]


def ramp(y: np.ndarray, degrees: float) -> np.ndarray:
    """Height of the slope: 0 up to y = 0.1, a parabola up to 0.4, then straight."""
    bend = np.clip(y - 0.1, 0.0, 0.3)
    return math.tan(math.radians(degrees)) * (bend**2 / 0.6 + np.clip(y - 0.4, 0.0, None))


def grassland(draw: Draw) -> np.ndarray:
    """Soil with tufts of 8 cm over waves of 35 cm."""
    return smooth(draw, 0.012, 0.08) + smooth(draw, 0.015, 0.35)


def smooth(draw: Draw, rms: float, length: float) -> np.ndarray:
    """A Gaussian random field over PATH whose correlation falls to 1/e at `length`: white noise, then a Gaussian blur."""
    sigma = length / (2 * PATH.cell)  # of the blur, in vertices: correlation is exp(-r²/4σ²)
    margin = math.ceil(4 * sigma)
    noise = draw.standard_normal((PATH.rows + 2 * margin, PATH.columns + 2 * margin))
    offsets = np.arange(-margin, margin + 1)
    kernel = np.exp(-0.5 * (offsets / sigma) ** 2)
    kernel /= np.linalg.norm(kernel)  # the variance of the sum is that of one number
    # Along one axis, then the other, by the convolution theorem; what wraps around falls into the margin.
    for axis in (0, 1):
        size = noise.shape[axis]
        shape = [1, 1]
        shape[axis] = -1
        spectrum = np.fft.rfft(np.roll(np.pad(kernel, (0, size - len(kernel))), -margin)).reshape(shape)
        noise = np.fft.irfft(np.fft.rfft(noise, axis=axis) * spectrum, size, axis=axis)
    return rms * noise[margin : margin + PATH.rows, margin : margin + PATH.columns]


def _stones(
    draw: Draw,
    shape: tuple[int, ...],
    height: float,
    tilt: float,
    at: tuple[np.ndarray, np.ndarray],
    x: np.ndarray,
    y: np.ndarray,
) -> np.ndarray:
    """Heights of flat stones: each has a height N(0, height) at its middle and two tilts N(0, tilt)."""
    levels = draw.normal(0.0, height, shape)
    slopes = np.tan(draw.normal(0.0, tilt, (2, *shape)))
    rows, columns = np.broadcast_arrays(*at)
    label = rows * shape[1] + columns
    count = np.maximum(np.bincount(label.ravel(), minlength=shape[0] * shape[1]), 1)
    centres = []
    for places in (x, y):
        total = np.bincount(label.ravel(), np.broadcast_to(places, label.shape).ravel(), minlength=len(count))
        centres.append((total / count)[label])
    return levels[at] + slopes[0][at] * (x - centres[0]) + slopes[1][at] * (y - centres[1])


Index = tuple[np.ndarray, np.ndarray]


def _voronoi(draw: Draw, x: np.ndarray, y: np.ndarray, size: float) -> tuple[Index, Index, np.ndarray]:
    """The nearest and the second nearest stone of every vertex, and the middles of the stones `[row, column, (x, y)]`.

    One stone in each square of a grid, at a random place of its inner part: only the squares around a vertex can be near.
    """
    rows, columns = (math.ceil((side[-1] - side[0]) / size) + 4 for side in (y, x))
    corner = np.array([x[0], y[0]]) - 2 * size
    inside = draw.uniform(0.15, 0.85, (rows, columns, 2))
    places = corner + size * (np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1) + inside)
    row, column = ((np.floor((side - start) / size)).astype(int) for side, start in ((y, corner[1]), (x, corner[0])))
    around = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    squares = [(np.add(row[:, None], i), np.add(column[None], j)) for i, j in around]
    distances = np.stack([_squared(places[square], x, y) for square in squares])
    order = np.argpartition(distances, 1, axis=0)[:2]
    swap = np.take_along_axis(distances, order[:1], 0) > np.take_along_axis(distances, order[1:], 0)
    order = np.where(swap, order[::-1], order)
    offsets = np.array(around)
    near, second = ((row[:, None] + offsets[which][..., 0], column[None] + offsets[which][..., 1]) for which in order)
    return near, second, places


def _squared(places: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (places[..., 0] - x[None]) ** 2 + (places[..., 1] - y[:, None]) ** 2


@dataclasses.dataclass(frozen=True)
class Terrain:
    """One of the paper's real terrains: surface (None: a plane), friction and softness of the ground, target and horizon.

    The ground's friction holds whatever the foot's is; `spin_roll` replaces the randomised ones; `drag` is in N·s/m.
    """

    target: float
    steps: int
    slide: Range
    surface: Callable[[Draw], np.ndarray] | None = None
    solref: str = "0.02 1"
    solimp: str = "0.9 0.95 0.001"
    spin_roll: tuple[float, float] | None = None
    drag: float = 0.0


TERRAINS = {
    "smooth-road": Terrain(3.0, 200, (0.55, 0.85)),
    "rough-stone-road": Terrain(1.0, 160, (0.7, 1.0), rough_stone),
    "uphill-stone-road": Terrain(1.0, 160, (0.6, 0.9), functools.partial(uphill_stone, degrees=8.0)),
    "grassland": Terrain(
        1.0, 160, (0.5, 0.8), grassland, solref="0.04 1.2", solimp="0.5 0.9 0.02", spin_roll=(0.02, 0.002), drag=1.0
    ),
}
START_PATCH = (0.16, 0.2)  # half sides: where the robot stands; its highest vertex is at z = 0


def level(surface: np.ndarray) -> tuple[np.ndarray, float]:
    """Heights from 0 up, as a height field wants them, and the z of the field at which the start patch ends at 0."""
    x, y = PATH.vertices()
    heights = surface - surface.min()
    patch = heights[np.ix_(np.abs(y) < START_PATCH[1], np.abs(x) < START_PATCH[0])]
    return heights, -float(patch.max())
