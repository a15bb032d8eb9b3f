"""Paths stay inside the root, whatever its links say."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocsteady.system.root import is_absolute, parent, resolve_inside, well_formed


def resolve(path: str, **links: str) -> str:
    return resolve_inside(path, links.get)


@pytest.mark.parametrize(
    ("path", "links", "resolved"),
    [
        pytest.param("//a/./b/", {}, "/a/b", id="without detours"),
        pytest.param("/a/b/c", {"/a/b": "../x/y"}, "/x/y/c", id="relative links start there"),
        pytest.param("/a/b/c", {"/a/b": "/x"}, "/x/c", id="absolute links start at the root"),
        pytest.param("/a/b", {"/a/b": "../../../etc/shadow"}, "/etc/shadow", id="none climbs out"),
        pytest.param("/a", {"/a": "b", "/b": "/c/d", "/c": "e"}, "/e/d", id="links of links"),
    ],
)
def test_links_are_followed_inside(path: str, links: dict[str, str], resolved: str) -> None:
    assert resolve(path, **links) == resolved


@pytest.mark.parametrize("path", ["/a/../b", "..", "/.."])
def test_climbing_in_the_question_itself_is_refused(path: str) -> None:
    with pytest.raises(OSError, match="refused"):
        resolve(path)


def test_a_loop_is_an_error_as_on_linux() -> None:
    with pytest.raises(OSError, match="symbolic links") as caught:
        resolve("/a", **{"/a": "/b", "/b": "/a"})

    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize(
    ("path", "links"),
    [("/a" * 100_000, {}), ("/a", {"/a": "/b" * 100_000}), ("/a", {"/a": "a" + "/b" * 500})],
    ids=["question", "link", "link to itself that adds to it"],
)
def test_a_path_that_has_no_end_is_an_error(path: str, links: dict[str, str]) -> None:
    with pytest.raises(OSError, match="too long"):
        resolve(path, **links)


def test_drives_of_windows_are_kept_and_other_colons_are_names() -> None:
    assert resolve("C:/Users//x") == "C:/Users/x"
    assert resolve("C:") == "C:"
    assert resolve("/x:y/z") == "/x:y/z"


@pytest.mark.parametrize(
    ("path", "absolute"),
    [("/a", True), ("C:/a", True), ("a", False), ("./a", False), ("C:a", False), ("", False)],
)
def test_is_absolute(path: str, absolute: bool) -> None:  # noqa: FBT001 - a table
    assert is_absolute(path) is absolute


@pytest.mark.parametrize(
    ("path", "above"), [("/a/b", "/a"), ("/a", "/"), ("/", "/"), ("C:/a", "C:")]
)
def test_parent(path: str, above: str) -> None:
    assert parent(path) == above


def test_names_that_are_not_utf8_can_be_written_again() -> None:
    assert well_formed(b"a\xffb".decode("utf-8", "surrogateescape")) == "a?b"
    assert well_formed("grün") == "grün"


PART = st.sampled_from(["", ".", "..", "a", "b", "C:", "x:y"])
PATH = st.lists(PART, max_size=6).map("/".join)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(path=PATH, links=st.dictionaries(PATH.map(lambda path: f"/{path}"), PATH, max_size=4))
def test_whatever_the_links_say_the_result_is_inside_or_an_error(
    path: str, links: dict[str, str]
) -> None:
    try:
        found = resolve_inside(path, links.get)
    except OSError:
        return
    assert is_absolute(found) or found == "C:"
    assert ".." not in found.split("/")
