"""The gallery: a page for each model of `hyjax.models` and the cards of the index, made at the build; git ignores the pages.

Equations, parameters and source are read from the model's module; picture and digits are those that `tools/gallery.py` stored.
"""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

FOLDER = pathlib.Path(__file__).parent.parent / "gallery"
REPOSITORY = "../../hyjax/models"


def picture(name: str) -> str:
    """The file of a model's picture, in the folder of the gallery."""
    return next(f"{name}.{suffix}" for suffix in ("gif", "png") if (FOLDER / f"{name}.{suffix}").exists())


def card(name: str, model: ModuleType, digits: dict[str, Any]) -> str:
    """A model's card: picture, title, stability of the gait, source; it links the model's page."""
    return "\n".join(
        [
            f":::{{grid-item-card}} {model.title}",
            f":link: {name}",
            ":link-type: doc",
            f":img-top: {picture(name)}",
            f":img-alt: {model.title}",
            "",
            _said(digits),
            "",
            f"{model.source[0].upper()}{model.source[1:]}",
            ":::",
        ]
    )


def _said(digits: dict[str, Any]) -> str:
    """What a card says of the digits."""
    if "gaits" not in digits:
        return f"Simulated: {digits['jumps']} jumps."
    stable = sum(gait["stable"] for gait in digits["gaits"])
    count = len(digits["gaits"])
    return f"{count} gait{'s' * (count > 1)}, {stable} stable."


def page(name: str, model: ModuleType, digits: dict[str, Any]) -> str:
    """A model's page: picture, command, digits, equations, parameters, source file."""
    head, _, body = (model.__doc__ or "").strip().partition("\n\n")
    return "\n\n".join(
        [
            f"# {model.title}",
            f"{head}",
            f"![{model.title}]({picture(name)})",
            f"```sh\n{digits['command']}\n```",
            "## Digits",
            _gaits(model, digits) if "gaits" in digits else _end(digits),
            *([f"## Torques and forces\n\n![Torques and forces]({name}_forces.png)"] if _has_forces(name) else []),
            *_gait_map(name),
            "## Equations",
            body,
            "## Parameters",
            _parameters(model),
            "## Source file",
            f"{{download}}`hyjax/models/{name}.py <{REPOSITORY}/{name}.py>`",
            f"````{{dropdown}} hyjax/models/{name}.py\n```{{literalinclude}} {REPOSITORY}/{name}.py\n:language: python\n```\n"
            "````",
        ]
    )


def _gait_map(name: str) -> list[str]:
    """The section with the page of a model's families, of a model that has one: within the page, which needs no other file."""
    from hyjax.plot import GaitMap

    path = FOLDER / f"{name}_gaits.json"
    if not path.exists():
        return []
    drawn = GaitMap(json.loads(path.read_text(encoding="utf-8")))._repr_html_()
    return [
        "## Gait map",
        "Families of gaits over the energy. Point at a large mark, or click it, and the gait moves.",
        f"````{{raw}} html\n{drawn}\n````",
    ]


def _has_forces(name: str) -> bool:
    return (FOLDER / f"{name}_forces.png").exists()


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _units(model: ModuleType):
    from hyjax._results.labels import units_of

    return units_of(model, model.Params(), model.system)


def _gaits(model: ModuleType, digits: dict[str, Any]) -> str:
    """Just after the last jump of the sequence: state, period, multipliers of each gait."""
    gaits, units = digits["gaits"], _units(model)
    column = lambda values: [f"{value:.12g}" for value in values]
    rows = [
        [f"`{name}`", units.coordinates.get(name, ""), *column(gait["x0"][k] for gait in gaits)]
        for k, name in enumerate(model.coordinates)
    ]
    rows.append(["period", units.time, *column(gait["period"] for gait in gaits)])
    for k in range(len(gaits[0]["multipliers"])):
        rows.append([f"multiplier {k + 1}", "1", *(_complex(*gait["multipliers"][k]) for gait in gaits)])
    rows.append(["stable", "", *("yes" if gait["stable"] else "no" for gait in gaits)])
    return _table(["", "unit", *(f"gait {k}" for k in range(1, len(gaits) + 1))], rows)


def _complex(real: float, imaginary: float) -> str:
    # A multiplier of the size of rounding is zero.
    real, imaginary = round(real, 12) + 0.0, round(imaginary, 12) + 0.0
    return f"{real:.12g}" + (f" {'+' if imaginary > 0 else '-'} {abs(imaginary):.12g}i" if imaginary else "")


def _end(digits: dict[str, Any]) -> str:
    """Where the simulation of the command ends."""
    end = digits["end"]
    rows = [["time", f"{end['t']:.12g}"], ["mode", end["mode"]], ["jumps", str(digits["jumps"])]]
    rows += [[f"`{name}`", f"{x:.9g}"] for name, x in zip(end["coordinates"], end["x"], strict=True)]
    return _table(["", "end of the simulation"], rows)


def _parameters(model: ModuleType) -> str:
    fields = [field for field in dataclasses.fields(model.Params) if "default" in field.metadata]
    rows = [
        [f"`{field.name}`", f"{field.metadata['default']:.10g}", field.metadata["unit"], field.metadata["meaning"]]
        for field in fields
    ]
    return _table(["parameter", "default", "unit", "meaning"], rows)


# The models by what they do.
GROUPS = {
    "Walk": """rimless_wheel simplest_walker powered_walker two_spring_walker compass_gait powered_compass_gait bhounsule_walker
        kneed_walker rabbit geyer_walker""",
    "Run and hop": "slip slip_retraction biped_slip jerboa quadruped_slip monopod_hopper thrusting_hopper",
    "Bounce and strike": """bouncing_ball ball_on_slope paddle_juggler vibrating_table rocking_block linear_impact_oscillator
        duffing_impact_oscillator impact_microactuator relief_valve newtons_cradle hard_disks""",
    "Switch and slide": "buck_converter boost_converter bangbang friction_oscillator relay_feedback piecewise",
    "Fire": "integrate_and_fire pulse_coupled_neurons",
}


def index(cards: dict[str, str], names: list[str]) -> str:
    """The index: the cards in groups. **Arguments:** `cards`: by the names of the models."""
    groups = {title: group.split() for title, group in GROUPS.items()}
    if missing := {*names} ^ {name for group in groups.values() for name in group}:
        raise ValueError(f"docs/_ext/gallery.py: GROUPS has to hold each model once: {', '.join(sorted(missing))}.")
    grid = lambda group: ["::::{grid} 1 2 3 3", ":gutter: 3", "", *(cards[name] for name in group), "::::", ""]
    return "\n".join(
        [
            "# Gallery of models",
            "",
            "The models of `hyjax.models`, each with its picture, equations, source, command and digits.",
            "",
            *(line for title, group in groups.items() for line in (f"## {title}", "", *grid(group))),
            "```{toctree}",
            ":hidden:",
            "",
            *names,
            "```",
            "",
        ]
    )


def write() -> None:
    """Write the pages and the index, where they have changed."""
    from hyjax import models

    digits = json.loads((FOLDER / "digits.json").read_text(encoding="utf-8"))
    pages = {name: page(name, models.load(name), digits[name]) + "\n" for name in models.names}
    pages["index"] = index(
        {name: card(name, models.load(name), digits[name]) for name in models.names}, list(models.names)
    )
    for name, text in pages.items():
        path, text = FOLDER / f"{name}.md", re.sub(r"\n{3,}", "\n\n", text)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def write_apart(app) -> None:
    """Write the pages in a process of its own: a parallel build forks, and a process that has imported JAX has threads."""
    subprocess.run([sys.executable, __file__], check=True, cwd=FOLDER.parents[1])


def setup(app) -> dict[str, bool]:
    app.connect("builder-inited", write_apart)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    write()
