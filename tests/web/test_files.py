"""A folder as a site: its files, and nothing beside them."""

import urllib.error
import urllib.request

import pytest

from palestra.envs.web.files import serve_folder


@pytest.fixture
def site(tmp_path):
    (tmp_path / "secret.txt").write_text("no")
    folder = tmp_path / "site"
    (folder / "sub").mkdir(parents=True)
    (folder / "page.html").write_text("<p>Hello")
    return f"http://{serve_folder(folder)}"


def test_its_files_are_there_and_may_be_kept(site):
    with urllib.request.urlopen(f"{site}/page.html") as answer:
        assert answer.read() == b"<p>Hello"
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    "path",
    ["/sub/", "/", "/../secret.txt", "/%2e%2e/secret.txt", "/sub/../../secret.txt", "/none.html"],
)
def test_nothing_else_is(site, path):
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{site}{path}")
    assert error.value.code == 404


def test_a_folder_has_one_server(tmp_path):
    assert serve_folder(tmp_path) == serve_folder(tmp_path)
