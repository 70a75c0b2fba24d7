"""A hybrid system as tables of its modes and transitions, in text, and in Markdown with a Mermaid state diagram."""

from collections.abc import Iterator, Sequence
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from .system import HybridSystem


def system_markdown(system: "HybridSystem") -> str:
    """The diagram, then the tables: an arrow has the numbers that its transitions have in the table."""
    tables = ["\n".join(f"| {' | '.join(row)} |" for row in _ruled(rows)) for rows in _tables(system)]
    return "\n\n".join([f"```mermaid\n{mermaid(system)}\n```", _title(system), *tables])


def system_lines(system: "HybridSystem") -> Iterator[str]:
    """The tables as lines of text, in columns."""
    yield _title(system)
    for table in _tables(system):
        rows = [[cell.replace("`", "") for cell in row] for row in table]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  " + "  ".join(map(str.ljust, row, widths)).rstrip()


def mermaid(system: "HybridSystem") -> str:
    """The text of a Mermaid state diagram: a state for each mode, an arrow for each pair of modes with a transition."""
    place = {name: f"m{k}" for k, name in enumerate(system.names)}
    quoted = lambda text: text.replace('"', "#quot;")
    arrows: dict[tuple[str, str], list[str]] = {}
    for k, way in enumerate(system.transitions):
        arrows.setdefault((way.source, way.target), []).append(str(k))
    return "\n".join(
        [
            "stateDiagram-v2",
            "direction LR",
            *(f'state "{quoted(name)}" as {each}' for name, each in place.items()),
            *(f"{place[a]} --> {place[b]} : {', '.join(numbers)}" for (a, b), numbers in arrows.items()),
        ]
    )


def _title(system: "HybridSystem") -> str:
    time = f", time in {_unit(system.time_unit)}" if system.time_unit not in ("", "1") else ""
    return f"HybridSystem: {len(system.modes)} mode{'s' * (len(system.modes) != 1)}{time}"


def _tables(system: "HybridSystem") -> Iterator[list[Sequence[str]]]:
    rows = []
    for name, mode in system.modes.items():
        units = [*mode.units, *[""] * mode.dimension]
        state = ", ".join(
            f"{each} ({_unit(unit)})" if unit not in ("", "1") else each
            for each, unit in zip(mode.coordinates, units, strict=False)
        )
        rows.append((name, state, _name(mode.vector_field), _name(mode.domain)))
    yield _table(("mode", "state", "flow", "domain"), rows)
    if system.transitions:
        ways = [
            (
                str(k),
                f"{way.source} → {way.target}",
                _name(way.guard),
                _name(way.reset),
                _name(way.armed),
                "yes" if way.at_once else "",
                "yes" if way.is_family else "",
            )
            for k, way in enumerate(system.transitions)
        ]
        yield _table(("number", "transition", "guard falls", "reset", "armed", "at once", "family"), ways)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """A table and its head, without the columns that are empty."""
    used = [k for k in range(len(heads)) if any(row[k] for row in rows)]
    return [[row[k] for k in used] for row in (heads, *rows)]


def _ruled(rows: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """The rows of a table in Markdown, with the rule below the head."""
    for k, row in enumerate(rows):
        yield [cell.replace("|", "&#124;") for cell in row]
        if k == 0:
            yield ["---"] * len(row)


def _unit(unit: str) -> str:
    return unit.replace("sqrt(", "√(")


def _name(fn: Any) -> str:
    """The name of a function, as far as it has one."""
    if fn is None:
        return ""
    inner = getattr(fn, "func", fn)  # of a partial function
    return f"`{getattr(inner, '__name__', type(inner).__name__).replace('<lambda>', 'λ')}`"
