"""Find broken links inside the built site: `python tools/links.py build/site`.

Sphinx checks what Markdown and docstrings refer to. This reads the pages as a browser does, so that raw HTML, pictures, scripts
and anchors are checked too: every relative address must be a file of the site, and every fragment an element of its page. No
picture, script or style may come from another server, since the site is read without a network too; links to other servers are
not followed.
"""

import argparse
import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """The addresses that a page uses, and the names of its elements."""

    def __init__(self, text: str):
        super().__init__()
        self.addresses: list[str] = []
        self.loaded: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key == "id" or (key == "name" and tag == "a"):
                self.names.add(value or "")
            elif key in ("href", "src", "data-src", "poster") and value:
                self.addresses.append(value)
                if tag != "a" and not (tag == "link" and ("rel", "stylesheet") not in attrs):
                    self.loaded.append(value)


def broken_links(site: pathlib.Path) -> list[str]:
    """`page: address` for each address inside the site that leads nowhere, or that is loaded from another server."""
    site = site.resolve()
    files = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.relative_to(site).parts]
    pages = {path: Page(path.read_text()) for path in files}
    broken = []
    for path, page in pages.items():
        for address in dict.fromkeys(page.addresses):
            parts = urllib.parse.urlsplit(address)
            if parts.scheme or parts.netloc:
                if parts.netloc and address in page.loaded:
                    broken.append(f"{path.relative_to(site)}: {address} is loaded from another server")
                continue
            target = path if not parts.path else (path.parent / urllib.parse.unquote(parts.path)).resolve()
            missing = not target.is_file() or (
                parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].names
            )
            if missing:
                broken.append(f"{path.relative_to(site)}: {address}")
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(description="Find broken links inside the built site.")
    parser.add_argument("site", type=pathlib.Path)
    site = parser.parse_args().site
    if not (site / "index.html").is_file():
        sys.exit(f"links: {site} has no index.html: build the site first.")
    broken = broken_links(site)
    print(*broken, sep="\n", end="\n" if broken else "")
    if broken:
        sys.exit(f"links: {len(broken)} broken.")


if __name__ == "__main__":
    main()
