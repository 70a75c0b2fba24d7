"""What README.md promises, read from its text: so that text and tests cannot drift apart."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    """What stands between fences of a language."""
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def accuracy() -> dict[str, float]:
    """The table of errors: a row's label and the first number of its second column. `…` stands for the model above."""
    rows = re.findall(r"^\| (.+?) \| .*?(\d[\d.]*e-\d+).*\|$", section("How accurate"), re.MULTILINE)
    return {label: float(error) for label, error in rows}


def claimed(label: str) -> float:
    """The largest error that the table admits."""
    return accuracy()[label]


def factor_of_a_loose_event() -> float:
    """By how much at most multipliers are worse than the event's time."""
    return float(re.findall(r"within (\d+)\s+times\s+the error of the event's time", TEXT)[0])
