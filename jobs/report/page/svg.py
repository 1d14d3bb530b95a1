"""Plots as inline SVG: lines and bars, with a title and a description for screen readers; the page sets the colours."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

WIDTH, HEIGHT = 360, 230
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 40
LARGEST_DISC = 8
"""The radius of the largest disc."""

_TICKS = (1, 2, 2.5, 5, 10)
_MARKED = 40
"""Points of a line up to which each is marked."""

_RECTANGLE = Markup('<rect class="bar" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"><title>{}</title></rect>')
_ZERO_LINE = Markup('<line class="zero" x1="{0:.2f}" x2="{0:.2f}" y1="{1}" y2="{2}"/>')

Value = float | None
Format = Callable[[float], str]


@dataclass(frozen=True)
class Line:
    """A line through points, with a gap where a value is None."""

    name: str
    """What it shows."""
    x: Sequence[float]
    """Ascending."""
    y: Sequence[Value]
    """One for each x."""
    kind: str = "a"
    """Which of the page's colours and dashes: a, b, c or d."""
    steps: bool = False
    """Whether each value holds from the point before up to its own."""
    dots: bool = False
    """Whether points are shown alone, without a line."""


@dataclass(frozen=True)
class Point:
    """A disc."""

    x: float
    """Where it is."""
    y: float
    """Where it is."""
    share: float
    """Its area as a share of the largest one."""
    kind: str
    """Which of the page's colours."""
    tip: str
    """What it stands for."""


@dataclass(frozen=True)
class Plot:
    """A picture and its texts."""

    name: str
    """An identifier, unique in the page."""
    title: str
    """What it shows."""
    description: str
    """What it shows, in a sentence."""
    svg: Markup
    """The picture."""
    legend: tuple[tuple[str, str], ...] = ()
    """Kind and name of each line, if there are several."""


@dataclass(frozen=True)
class Axis:
    """A linear scale from values to positions in the picture, with round ticks."""

    low: float
    """The value at `begin`."""
    high: float
    """The value at `end`."""
    begin: float
    """The position of `low`."""
    end: float
    """The position of `high`."""
    shown: Format = field(default=lambda value: f"{value:g}")
    """How a value is written."""

    @property
    def ticks(self) -> list[float]:
        """Return three to eight round values within the scale."""
        step = round_step((self.high - self.low) / 5.5)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, first + 12) if i * step <= self.high + 1e-9 * step]

    def position(self, value: float) -> float:
        """Return the position of a value."""
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5 times a power of ten that is at least `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(t * power for t in _TICKS if t * power >= least * (1 - 1e-9))


def axis_of(values: Sequence[float], begin: float, end: float, shown: Format, *, zero: bool) -> Axis:
    """Return an axis around all values, and around zero if `zero`."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    low = min(low, 0.0) if zero else low
    if not high > low:
        margin = abs(high) / 10 or 0.5
        low, high = (low if zero else low - margin), high + margin
    elif not zero:
        margin = 0.06 * (high - low)
        low, high = low - margin, high + margin
    else:
        high += 0.06 * (high - low)
    return Axis(low, high, begin, end, shown)


def plot_lines(
    name: str,
    title: str,
    description: str,
    lines: Sequence[Line],
    x_label: str,
    x_shown: Format,
    y_shown: Format,
    *,
    zero: bool = False,
) -> Plot:
    """Return a plot of lines over a common pair of axes; the vertical one begins at zero if `zero`."""
    lines = [line for line in lines if any(value is not None for value in line.y)]
    xs = [x for line in lines for x in line.x]
    ys = [y for line in lines for y in line.y if y is not None]
    across = _across(xs, x_shown)
    up = axis_of(ys, HEIGHT - BOTTOM, TOP, y_shown, zero=zero)
    parts = [*_grid(across, up, x_label), *(part for line in lines for part in _line(line, across, up))]
    legend = (
        tuple((f"{line.kind} dots" if line.dots else line.kind, line.name) for line in lines) if len(lines) > 1 else ()
    )
    return Plot(name, title, description, _svg(name, title, description, parts), legend)


def _across(xs: Sequence[float], shown: Format) -> Axis:
    low, high = (min(xs), max(xs)) if xs else (0.0, 1.0)
    if not high > low:
        low, high = low - (abs(low) / 10 or 1.0), high + (abs(high) / 10 or 1.0)
    return Axis(low, high, LEFT, WIDTH - RIGHT, shown)


def plot_bars(
    name: str,
    title: str,
    description: str,
    edges: Sequence[float],
    values: Sequence[float],
    x_label: str,
    shown: Format,
) -> Plot:
    """Return a histogram: bars between edges, one more than there are values."""
    across = Axis(edges[0], edges[-1], LEFT, WIDTH - RIGHT, shown)
    up = axis_of(list(values), HEIGHT - BOTTOM, TOP, compact, zero=True)
    parts = [*_grid(across, up, x_label)]
    for left, right, value in zip(edges[:-1], edges[1:], values, strict=True):
        x, width = across.position(left), across.position(right) - across.position(left)
        y = up.position(value)
        tip = f"{shown(left)} to {shown(right)}: {value:,.6g}"
        parts.append(_RECTANGLE.format(x + 0.4, y, max(width - 0.8, 0.4), max(HEIGHT - BOTTOM - y, 0), tip))
    if edges[0] < 0 < edges[-1]:
        parts.append(_ZERO_LINE.format(across.position(0.0), TOP, HEIGHT - BOTTOM))
    return Plot(name, title, description, _svg(name, title, description, parts))


def plot_points(
    name: str, title: str, description: str, points: Sequence[Point], x_label: str, legend: Sequence[tuple[str, str]]
) -> Plot:
    """Return discs over a common pair of axes, the smallest on top; `legend` has the kinds and their names."""
    across = axis_of([point.x for point in points], LEFT, WIDTH - RIGHT, compact, zero=False)
    up = axis_of([point.y for point in points], HEIGHT - BOTTOM, TOP, compact, zero=False)
    disc = Markup('<circle class="dot cell {}" cx="{:.2f}" cy="{:.2f}" r="{:.2f}"><title>{}</title></circle>')
    parts = [
        disc.format(p.kind, across.position(p.x), up.position(p.y), 1.2 + LARGEST_DISC * math.sqrt(p.share), p.tip)
        for p in sorted(points, key=lambda point: -point.share)
    ]
    keys = tuple((f"{kind} dots", text) for kind, text in legend)
    return Plot(name, title, description, _svg(name, title, description, [*_grid(across, up, x_label), *parts]), keys)


def _svg(name: str, title: str, description: str, parts: Sequence[Markup]) -> Markup:
    return Markup(
        '<svg viewBox="0 0 {w} {h}" role="img" aria-labelledby="{n}-title {n}-desc">'
        '<title id="{n}-title">{t}</title><desc id="{n}-desc">{d}</desc>{parts}</svg>'
    ).format(w=WIDTH, h=HEIGHT, n=name, t=title, d=description, parts=Markup("").join(parts))


def _grid(across: Axis, up: Axis, x_label: str) -> Iterator[Markup]:
    bottom = HEIGHT - BOTTOM
    for value in up.ticks:
        y = up.position(value)
        yield Markup('<line class="grid" x1="{}" x2="{}" y1="{:.2f}" y2="{:.2f}"/>').format(LEFT, WIDTH - RIGHT, y, y)
        yield Markup('<text x="{}" y="{:.2f}" text-anchor="end">{}</text>').format(LEFT - 6, y + 4, up.shown(value))
    yield Markup('<line class="axis" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(LEFT, WIDTH - RIGHT, y=bottom)
    for value in across.ticks:
        x = across.position(value)
        anchor = "end" if x > WIDTH - RIGHT - 12 else "middle"
        yield Markup('<line class="axis" x1="{0:.2f}" x2="{0:.2f}" y1="{1}" y2="{2}"/>').format(x, bottom, bottom + 4)
        label = Markup('<text x="{:.2f}" y="{}" text-anchor="{}">{}</text>')
        yield label.format(
            min(x, WIDTH - 2) if anchor == "middle" else WIDTH - 2, bottom + 17, anchor, across.shown(value)
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield Markup('<text class="label" x="{}" y="{}" text-anchor="middle">{}</text>').format(middle, HEIGHT - 6, x_label)


def _line(line: Line, across: Axis, up: Axis) -> Iterator[Markup]:
    points = [(across.position(x), None if y is None else up.position(y)) for x, y in zip(line.x, line.y, strict=True)]
    if not line.dots:
        yield Markup('<path class="line {}" d="{}"/>').format(line.kind, _course(points, steps=line.steps))
    if line.dots or sum(y is not None for _, y in points) <= _MARKED:
        for (x, y), at, value in zip(points, line.x, line.y, strict=True):
            if y is not None and value is not None:
                tip = f"{line.name}: {up.shown(value)} at {across.shown(at)}"
                dot = Markup('<circle class="dot {}" cx="{:.2f}" cy="{:.2f}" r="{}"><title>{}</title></circle>')
                yield dot.format(line.kind, x, y, 3.2 if line.dots else 2.4, tip)


def _course(points: Sequence[tuple[float, float | None]], *, steps: bool) -> str:
    parts, before = [], None
    for x, y in points:
        if y is None:
            before = None
        elif before is None:
            parts.append(f"M{x:.2f} {y:.2f}")
        else:
            parts.append(f"V{y:.2f}H{x:.2f}" if steps else f"L{x:.2f} {y:.2f}")
        before = y
    return "".join(parts)


def compact(value: float) -> str:
    """Return a number in a short form for an axis: 250k, 1.5M."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.4g}{unit}"
    return f"{value:.4g}"
