"""`tools/links.py`, which the check of a change runs on the built site."""

import pathlib
import sys

import pytest
from links import broken_links, main

GOOD = """<h1 id="top">A</h1> <a href="sub/b.html#there">b</a> <a href="#top">up</a> <img src="picture%201.png">
<a href="https://example.org/x">elsewhere</a> <a href="mailto:a@example.org">mail</a> <img src="data:image/png;base64,AA">"""


def site(tmp_path, page: str) -> pathlib.Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(page)
    (tmp_path / "picture 1.png").write_bytes(b"")
    (tmp_path / "sub" / "b.html").write_text(
        '<a name="there"></a> <a href="../index.html#top">a</a> <a href="../">folder</a>'
    )
    return tmp_path


def test_links_that_lead_somewhere(tmp_path):
    # A server gives a folder's index, a file system does not.
    assert broken_links(site(tmp_path, GOOD)) == ["sub/b.html: ../"]


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ('<a href="c.html">c</a>', "index.html: c.html"),
        ('<a href="sub/b.html#nowhere">b</a>', "index.html: sub/b.html#nowhere"),
        ('<a href="#nowhere">here</a>', "index.html: #nowhere"),
        ('<img src="picture2.png">', "index.html: picture2.png"),
        (
            '<script src="https://example.org/x.js"></script>',
            "index.html: https://example.org/x.js is loaded from another server",
        ),
    ],
)
def test_a_broken_link_is_found(tmp_path, element, said):
    assert said in broken_links(site(tmp_path, GOOD + element))


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["links", str(site(tmp_path, GOOD))])
    with pytest.raises(SystemExit, match="1 broken"):
        main()
    assert capsys.readouterr().out == "sub/b.html: ../\n"
    (tmp_path / "index.html").unlink()
    with pytest.raises(SystemExit, match="build the site first"):
        main()
