"""A page for each stored output of `benchmarks/outputs/`, with its date, machine and versions, and a list of what hyjax loses at.

`benchmarks/record.py` writes the outputs. The pages hold what is stored, and nothing else; git ignores them.
"""

import itertools
import json
import pathlib
import re

# Of the scripts that have a figure: the head of the column that it shows, and its title.
COLUMNS = {
    "strides": ("us a stride", "microseconds a stride"),
    "gaits": ("us a gait", "microseconds a gait"),
    "continuation": ("ms each", "milliseconds a point of the branch"),
    "compile_time": ("total", "seconds to the first result"),
}
NUMBER = r"\d+\.?\d*(?:e[-+]?\d+)?"


def records(root: pathlib.Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((root / "benchmarks" / "outputs").glob("*.json"))]


def name_of(record: dict) -> str:
    return record["script"].removesuffix(".py")


def busy(record: dict) -> bool:
    """Whether the machine did other work when the script started."""
    load = record["machine"]["load"]
    return load is not None and load > 0.3


def tables(lines: list[str]) -> list[list[str]]:
    """What stands between empty lines."""
    return [list(group) for filled, group in itertools.groupby(lines, lambda line: bool(line.strip())) if filled]


def column(lines: list[str], head: str) -> dict[str, float]:
    """The numbers under a head, which end where it ends, by the labels of their rows; of the first table with this head."""
    rows, end = {}, None
    for line in lines:
        if end is None:
            end = line.index(head) + len(head.rstrip()) if head in line else None
        elif not line.strip():
            break
        else:
            number = re.search(rf"({NUMBER})$", line[:end])
            label, *cells = re.split(r"\s{2,}", line.strip())
            if number and cells:
                rows[label] = float(number[1])
    return rows


def beside_hyjax(lines: list[str], head: str) -> list[tuple[list[float], dict[str, float]]]:
    """Of each table with such a column that compares hyjax with others: hyjax's numbers, and the others' below all of these."""
    found = []
    for rows in (column(table, head) for table in tables(lines)):
        ours = [number for label, number in rows.items() if label.startswith("hyjax")]
        less = {label: number for label, number in rows.items() if ours and number < min(ours)}
        found += [(ours, less)] if less else []
    return found


def losses(lines: list[str]) -> list[tuple[str, list[float]]]:
    """Of the rows that say how many times as fast hyjax is than another tool: those with a number below 1. A label ends with what
    the table's head has in brackets, such as the error."""
    found, inside, where = [], False, ""
    for line in lines:
        row = re.fullmatch(rf"(?:as )?(\S.*?)\s{{2,}}((?:{NUMBER}\s*)+)", line.strip())
        once = re.fullmatch(rf"(\S.*?)\s{{2,}}.*; hyjax is ({NUMBER}) times as fast", line.strip())
        sentence = re.fullmatch(rf"(?:.* is so many times as fast|\.\.\.) as (\S+): ({NUMBER})", line.strip())
        if sentence:
            found += [(sentence[1], [float(sentence[2])])] if float(sentence[2]) < 1 else []
        elif once:
            found += [(once[1], [float(once[2])])] if float(once[2]) < 1 else []
        elif "so many times as fast" in line:
            inside, where = True, f" {brackets[0]}" if (brackets := re.findall(r"\(.*?\)", line)) else ""
        elif not line.strip():
            inside = False
        elif inside and row and not row[1].startswith(("batch", "hyjax at")):
            values = [float(value) for value in row[2].split()]
            found += [(row[1] + where, values)] if min(values) < 1 else []
    # A table of times without such rows.
    for ours, less in beside_hyjax(lines, " ms  "):
        found += [(label, [float(f"{number / min(ours):.2g}")]) for label, number in less.items()]
    return [(label, values) for label, values in found if not label.startswith("hyjax")]


def figure(rows: dict[str, float], title: str, path: pathlib.Path) -> None:
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(6.4, 0.7 + 0.32 * len(rows)), layout="constrained")
    ax = drawing.subplots()
    colours = ["C0" if label.startswith("hyjax") else "0.65" for label in rows]
    if not any(label.startswith("hyjax") for label in rows):
        colours = ["C0"] * len(rows)
    bars = ax.barh(list(rows), list(rows.values()), color=colours)
    ax.bar_label(bars, fmt="%.3g", padding=3, fontsize=9)
    ax.set(xscale="log", xlabel=f"{title} (logarithmic)")
    ax.margins(x=0.12)
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)
    drawing.savefig(path, dpi=110, metadata={"Software": None})


def page(record: dict, folder: pathlib.Path) -> str:
    machine, versions = record["machine"], record["versions"]
    name, options = name_of(record), " ".join(record["options"])
    packages = ", ".join(f"{package} {version}" for package, version in versions.items())
    text = [f"(benchmark-{name})=", f"# `{record['script']}`", "", f"**{record['question']}**", ""]
    if busy(record):
        text += [
            ":::{warning}",
            f"The machine was busy: its load was {machine['load']} on {machine['cores']} cores when the script began. The times "
            "are longer than on a quiet machine, and not all by the same factor: ratios mean little, too.",
            ":::",
            "",
        ]
    if "--quick" in record["options"]:
        text += ["This is a short run (`--quick`): a first look.", ""]
    text += [
        "| | |",
        "|---|---|",
        f"| command | `python benchmarks/{record['script']}{' ' + options if options else ''}` |",
        f"| date | {record['date']} |",
        f"| machine | {machine['processor']}, {machine['cores']} cores, {machine['system']}; load {machine['load']} |",
        f"| versions | {packages} |",
        f"| duration | {record['seconds']} s |",
        "",
    ]
    head, title = COLUMNS.get(name, ("", ""))
    rows = column(record["output"], head) if head else {}
    if rows:
        figure(rows, title, folder / f"{name}.png")
        text += [f"![{title}, for each tool]({name}.png)", ""]
    return "\n".join([*text, "```text", *record["output"], "```", ""])


def lost(kept: list[dict]) -> str:
    """The lists of losses, to be included in the index."""
    rows = [
        f"| [`{record['script']}`](#benchmark-{name_of(record)}) | {label} | {', '.join(f'{value:g}' for value in values)} |"
        for record in kept
        for label, values in losses(record["output"])
    ]
    waits = []
    for record in kept:
        for ours, less in beside_hyjax(record["output"], "compile, s"):
            least_to_most = " to ".join(f"{number:g}" for number in sorted({min(ours), max(ours)}))
            others = "; ".join(f"{label}: {number:g}" for label, number in less.items())
            waits += [f"| [`{record['script']}`](#benchmark-{name_of(record)}) | {least_to_most} | {others} |"]
    text = ["**Computing time.**", ""]
    text += ["| script | beside | hyjax is so many times as fast |", "|---|---|---|", *rows] if rows else ["Nothing."]
    text += [
        "",
        "**The first result**, which waits for compilation: in seconds; of hyjax's programs, the least and the most.",
        "",
    ]
    text += ["| script | hyjax | beside |", "|---|---|---|", *waits] if waits else ["Nothing."]
    return "\n".join([*text, ""])


def runs(kept: list[dict]) -> str:
    """A table of the outputs, to be included in the index."""
    rows = [
        f"| [`{record['script']}`](#benchmark-{name_of(record)}) | {record['question']} | {record['date']} | "
        f"{record['machine']['load']} on {record['machine']['cores']} | {'short' if '--quick' in record['options'] else 'full'} |"
        for record in kept
    ]
    return "\n".join(["| script | question | date | load on cores | run |", "|---|---|---|---|---|", *rows, ""])


def write(app, config):
    root, folder = pathlib.Path(app.srcdir).parent, pathlib.Path(app.srcdir) / "benchmarks"
    kept = records(root)
    pages = {f"{name_of(record)}.md": page(record, folder) for record in kept}
    pages |= {"lost.txt": lost(kept), "runs.txt": runs(kept)}
    for stale in folder.glob("*.md"):
        if stale.name not in (*pages, "index.md"):
            stale.unlink()
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


def setup(app):
    app.connect("config-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
