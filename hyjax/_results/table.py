"""A table of a result: one description, from which its text and its HTML are made."""

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike

# Readable on a light and on a dark page: the colours are those of the page's text.
_RULE = "1px solid rgba(128, 128, 128, 0.6)"
_CELL = "padding: 0.15em 0.8em; border: none; background: none; vertical-align: top;"
_NUMBER = re.compile(r"[+-]?\d[\d.]*(e[+-]?\d+)?( [+-]\d[\d.]*(e[+-]?\d+)?i)?|nan|[+-]?inf")


class Table(NamedTuple):
    """A table: cells are text, with as many digits as the numbers have.

    **Attributes:** `caption`. `rows`: the first cell of each names the row unless there are `heads`. `heads`: the names of the
    columns. `units`: of the columns, empty where there is none; without `heads` the last cell of a row is its unit. `notes`:
    lines below the table. A row of one cell stands for rows that are left out.
    """

    caption: str
    rows: Sequence[Sequence[str]]
    heads: Sequence[str] = ()
    units: Sequence[str] = ()
    notes: Sequence[str] = ()

    def text(self, units: bool = False) -> str:
        """The table in plain text; with `units` also those."""
        named = units or bool(self.heads) or not self.units
        heads = [list(self.heads)] if self.heads else []
        if heads and units and any(self.units):
            heads.append([*self.units, *[""] * len(self.heads)][: len(self.heads)])
        rows = heads + _on_points([row if named or len(row) == 1 else row[:-1] for row in self.rows])
        for k in range(max(map(len, rows), default=0)):
            column = [row for row in rows if k < len(row)]
            width, right = max(len(row[k]) for row in column), bool(heads) and self._is_numeric(k)
            for row in column:
                row[k] = row[k].rjust(width) if right and len(row) > 1 else row[k].ljust(width)
        lines = [line.rstrip() for line in (*map("  ".join, rows), *self.notes)]
        return "\n".join([self.caption, *(f"  {line}" for line in lines)] if self.caption else lines)

    def html(self) -> str:
        """The table in HTML, whose style is in its elements; on a narrow page it scrolls."""
        width = max([len(self.heads), *map(len, self.rows)], default=1)
        head = ""
        if self.heads:
            cells = [
                f"{_escaped(name)}<br><small>{unit_html(unit)}</small>" if unit else _escaped(name)
                for name, unit in zip(self.heads, [*self.units, *[""] * len(self.heads)], strict=False)
            ]
            head = "".join(
                f'<th scope="col" style="{_CELL} text-align: {"right" if self._is_numeric(k) else "left"}; '
                f'border-bottom: {_RULE};">{cell}</th>'
                for k, cell in enumerate(cells)
            )
            head = f"<thead><tr>{head}</tr></thead>"
        body = "".join(f'<tr style="background: none;">{self._row(row, width)}</tr>' for row in self.rows)
        notes = "".join(f'<div style="padding: 0.15em 0.8em;">{_escaped(note)}</div>' for note in self.notes)
        return (
            '<div style="overflow-x: auto; margin: 0.5em 0;"><table style="border-collapse: collapse; border: none; width: auto; '
            f'margin: 0; border-top: {_RULE}; border-bottom: {_RULE}; font-variant-numeric: tabular-nums;">'
            '<caption style="caption-side: top; text-align: left; padding: 0.15em 0.8em; color: inherit; white-space: nowrap;">'
            f"{_escaped(self.caption)}</caption>{head}<tbody>{body}</tbody></table>{notes}</div>"
        )

    def _is_numeric(self, k: int) -> bool:
        return all(_is_number(row[k]) for row in self.rows if k < len(row) > 1 and row[k])

    def _row(self, row: Sequence[str], width: int) -> str:
        cells = []
        for k, cell in enumerate(row):
            last = k == len(row) - 1
            unit = last and not self.heads and bool(self.units)
            text = unit_html(cell) if unit else _escaped(cell)
            span = f' colspan="{width - k}"' if last and len(row) < width else ""
            align = "right; white-space: nowrap" if _is_number(cell) and not unit else "left"
            if k == 0 and not self.heads:
                style = f"{_CELL} text-align: left; font-weight: normal; white-space: nowrap;"
                cells.append(f'<th scope="row"{span} style="{style}">{text}</th>')
            else:
                cells.append(f'<td{span} style="{_CELL} text-align: {align};">{text}</td>')
        return "".join(cells)


def _on_points(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows with blanks by which the numbers of a column have their points below each other."""
    found = [list(row) for row in rows]
    for k in range(max(map(len, found), default=0)):
        column = [row for row in found if k < len(row) > 1 and _is_number(row[k])]
        whole = [len(re.split(r"[^\d+-]", row[k].strip())[0]) for row in column]
        for row, digits in zip(column, whole, strict=True):
            row[k] = " " * (max(whole) - digits) + row[k].strip()
        width = max((len(row[k]) for row in column), default=0)
        for row in column:
            row[k] = row[k].ljust(width)
    return found


def without_rounding(values: ArrayLike, size: ArrayLike | None = None) -> np.ndarray:
    """Multipliers, or their moduli, to be shown: real and imaginary parts below `eps**(2/3)`, 4e-11 in float64, are zero. With a
    `size`, numbers that are known in its units: those below `eps**(3/4) * size`, 2e-12."""
    values = np.asarray(values)
    eps = np.finfo(values.dtype).eps
    rounding = eps ** (2 / 3) if size is None else eps ** (3 / 4) * np.asarray(size)
    drop = lambda part: np.where(np.abs(part) < rounding, 0.0, part)
    return drop(np.real(values)) + 1j * drop(np.imag(values)) if np.iscomplexobj(values) else drop(values)


def complex_text(value: complex, digits: int) -> str:
    """A multiplier with its sign."""
    real, imag = value.real + 0.0, value.imag
    text = f"{real:+.{digits}g}"
    return text if imag == 0 else f"{text} {imag:+.{digits}g}i"


def shown_indices(count: int, most: int = 12) -> Sequence[int | None]:
    """The rows of a long table that are shown: all, or the first and the last, with `None` for those between."""
    if count <= most:
        return range(count)
    half = most // 2
    return [*range(half), None, *range(count - half, count)]


def unit_html(unit: str) -> str:
    """A unit in HTML: `rad sqrt(g/l)` becomes rad √(g/l), and a power a superscript; nothing for `1`."""
    if unit == "1":
        return ""
    text = html.escape(unit).replace("sqrt(", "√(")
    return re.sub(r"\^(-?\d+)", lambda found: f"<sup>{found[1].replace('-', '−')}</sup>", text)


def _escaped(text: str) -> str:
    return re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(text).replace("-&gt;", "→"))


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text.strip()))
