"""A table of a result, from which its text and its HTML are made."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Readable on a light and on a dark page: the colours are those of the page's text.
_RULE = "1px solid rgba(128, 128, 128, 0.6)"
_CELL = "padding: 0.15em 0.8em; border: none; background: none; vertical-align: top;"
_NUMBER = re.compile(r"[+-]?\d[\d.]*(e[+-]?\d+)?( [+-]\d[\d.]*(e[+-]?\d+)?i)?|nan|[+-]?inf")


class Table(NamedTuple):
    """A table: cells are text, with as many digits as the numbers have.

    **Attributes:** `caption`. `rows`: the first cell of each names the row unless there are `heads`. `heads`: the names of the
    columns. `units`: of the columns, empty where there is none; without `heads` the last cell of a row is its unit. `notes`:
    lines below the table.
    """

    caption: str
    rows: Sequence[Sequence[str]]
    heads: Sequence[str] = ()
    units: Sequence[str] = ()
    notes: Sequence[str] = ()

    def html(self) -> str:
        """The table in HTML, whose style is in its elements; on a narrow page it scrolls."""
        width = max([len(self.heads), *map(len, self.rows)], default=1)
        head = ""
        if self.heads:
            cells = [
                f"{_escaped(name)}<br><small>{unit_html(unit)}</small>" if unit else _escaped(name)
                for name, unit in zip(self.heads, [*self.units, *[""] * len(self.heads)], strict=False)
            ]
            numeric = [
                all(_is_number(row[k]) for row in self.rows if k < len(row) > 1 and row[k]) for k in range(len(cells))
            ]
            head = "".join(
                f'<th scope="col" style="{_CELL} text-align: {"right" if right else "left"}; border-bottom: {_RULE};">{cell}</th>'
                for cell, right in zip(cells, numeric, strict=True)
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


def table_of_text(text: str) -> Table:
    """The table that a text shows: a line for each row after the first, cells separated by two spaces or more."""
    caption, *lines = text.splitlines() or [""]
    return Table(caption, [re.split(r"\s{2,}", line.strip()) for line in lines if line.strip()])


def shown_indices(count: int, most: int = 12) -> Iterable[int | None]:
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
