"""A page for each stored output of `benchmarks/outputs/`, with its date, machine and versions, and a list of what hyjax loses at.

`benchmarks/record.py` writes the outputs. The pages hold what is stored, and nothing else; git ignores them.
"""

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


def column(lines: list[str], head: str) -> dict[str, float]:
    """The numbers under a head, which end where it ends, by the labels of their rows; of the first table with this head."""
    rows, end = {}, None
    for line in lines:
        if end is None:
            end = line.index(head) + len(head) if head in line else None
        elif not line.strip():
            break
        else:
            number = re.search(rf"({NUMBER})$", line[:end])
            label = re.split(r"\s{2,}", line.strip())[0]
            if number and label:
                rows[label] = float(number[1])
    return rows


def losses(lines: list[str]) -> list[tuple[str, list[float]]]:
    """Of the rows that say how many times as fast hyjax is: those with a number below 1."""
    found, inside = [], False
    for line in lines:
        row = re.fullmatch(rf"(?:as )?(\S.*?)\s{{2,}}((?:{NUMBER}\s*)+)", line.strip())
        if "so many times as fast" in line:
            inside = True
        elif not line.strip():
            inside = False
        elif inside and row and not row[1].startswith(("batch", "hyjax at")):
            values = [float(value) for value in row[2].split()]
            found += [(row[1], values)] if min(values) < 1 else []
    return found


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
            f"The machine was busy: its load was {machine['load']} on {machine['cores']} cores when the script began. Times of "
            "this run are too long by such a factor, and unevenly so. Ratios mean little, too.",
            ":::",
            "",
        ]
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
    """The list of losses, to be included in the index."""
    rows = [
        f"| [`{record['script']}`](#benchmark-{name_of(record)}) | {label} | {', '.join(f'{value:g}' for value in values)} |"
        for record in kept
        for label, values in losses(record["output"])
    ]
    if not rows:
        return "No stored output has such a ratio.\n"
    return "\n".join(["| script | beside | hyjax is so many times as fast |", "|---|---|---|", *rows, ""])


def write(app, config):
    root, folder = pathlib.Path(app.srcdir).parent, pathlib.Path(app.srcdir) / "benchmarks"
    kept = records(root)
    pages = {f"{name_of(record)}.md": page(record, folder) for record in kept} | {"lost.txt": lost(kept)}
    for stale in folder.glob("*.md"):
        if stale.name not in (*pages, "index.md"):
            stale.unlink()
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


def setup(app):
    app.connect("config-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
