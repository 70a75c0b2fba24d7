"""Cells of the tables in a text of HTML, read by the parser of the standard library."""

from html.parser import HTMLParser


class _Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows: list[list[str]] = []
        self.open = False

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.open = True
        if tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.open = False

    def handle_data(self, data):
        if self.open:
            self.rows[-1][-1] += data


def cells(page: str) -> list[list[str]]:
    """The cells of all rows of all tables."""
    parser = _Cells()
    parser.feed(page)
    parser.close()
    return parser.rows
