"""What a compose file says, as docker reads it."""

from __future__ import annotations

import random

import pytest

from rocsteady.doctor.yaml_tree import Leaf, Tree, read_yaml


def plain(tree: Tree) -> object:
    if isinstance(tree, Leaf):
        return tree.text
    if isinstance(tree, list):
        return [plain(item) for item in tree]
    return {key: plain(value) for key, value in tree.items()}


CASES = {
    "a: 1\nb: two words  # c\n": {"a": "1", "b": "two words"},
    "a:\n  b:\n    - c\n    - d: 1\n      e: 2\nf: g\n": {
        "a": {"b": ["c", {"d": "1", "e": "2"}]},
        "f": "g",
    },
    "a:\n- b\n- c\nd: 1\n": {"a": ["b", "c"], "d": "1"},
    'a: [b=1, \'c, d\', "e\\"f"]\n': {"a": ["b=1", "c, d", 'e"f']},
    "a: {b: 1, c: {d: [e]},\n  f: }\ng: 2\n": {
        "a": {"b": "1", "c": {"d": ["e"]}, "f": None},
        "g": "2",
    },
    "x: &x\n  a: 1\n  b: 2\ny:\n  <<: *x\n  b: 3\n": {
        "x": {"a": "1", "b": "2"},
        "y": {"a": "1", "b": "3"},
    },
    "x: &x {a: 1}\nz: &z {a: 2, b: 2}\ny: {<<: *x}\nw:\n  <<: [*x, *z]\nv: *x\n": {
        "x": {"a": "1"},
        "z": {"a": "2", "b": "2"},
        "y": {"a": "1"},
        "w": {"a": "1", "b": "2"},
        "v": {"a": "1"},
    },
    "a: |\n  b: 1\n  c\nd: >-\n  e\nf: 'it''s'\n": {"a": "b: 1\nc", "d": "e", "f": "it's"},
    "image: rocm/pytorch:latest\nurl: http://a#b\n": {
        "image": "rocm/pytorch:latest",
        "url": "http://a#b",
    },
    "a: !!str 1\nb:\n": {"a": "1", "b": None},
}


@pytest.mark.parametrize("text", CASES)
def test_one_document_is_read(text: str) -> None:
    assert [plain(tree) for tree in read_yaml(text)] == [CASES[text]]


def test_documents_are_apart_and_have_their_own_anchors() -> None:
    text = "a: &x 1\n---\na: *x\n...\n--- # c\nb: 2\n"

    assert [plain(tree) for tree in read_yaml(text)] == [{"a": "1"}, {"a": None}, {"b": "2"}]


def test_each_value_has_its_line() -> None:
    (tree,) = read_yaml("a:\n\n  b: 1\n  c: [2,\n    3]\n")

    assert tree == {"a": {"b": Leaf("1", 3), "c": [Leaf("2", 4), Leaf("3", 5)]}}


def test_what_is_not_yaml_ends_too() -> None:
    chance = random.Random(17)  # noqa: S311 - not a secret
    pieces = ["a: ", "- ", *"[]{},\n\"'#|>", "  ", "&a ", "*a", "<<: ", "---\n", "!x ", ": ", "b"]
    for _ in range(3000):
        text = "".join(chance.choices(pieces, k=chance.randint(1, 25)))
        assert isinstance([plain(tree) for tree in read_yaml(text)], list)
