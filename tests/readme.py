"""What README.md and the page of accuracy promise, read from their texts: so that text and tests cannot drift apart."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()
ACCURACY = (ROOT / "docs" / "accuracy.md").read_text()


def blocks(language: str) -> list[str]:
    """The blocks of README.md between fences of a language."""
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def claims() -> str:
    """The section of the page of accuracy with the table of errors."""
    return ACCURACY.partition("\n## What is claimed\n")[2].partition("\n## ")[0]


def accuracy() -> dict[str, float]:
    """The table of errors: a row's label and the first number of its second column. `…` stands for the model above."""
    rows = re.findall(r"^\| (.+?) \| .*?(\d[\d.]*e-\d+).*\|$", claims(), re.MULTILINE)
    return {label: float(error) for label, error in rows}


def claimed(label: str) -> float:
    """The largest error that the table admits."""
    return accuracy()[label]


def factor_of_a_loose_event() -> float:
    """The largest ratio of the error of multipliers to the error of the event's time, with a loose tolerance."""
    return float(re.findall(r"within (\d+)\s+times\s+the error of the event's time", claims())[0])
