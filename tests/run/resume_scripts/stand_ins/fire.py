"""Stand-in: Fire(function) with --name=value and --name value."""
import ast
import sys


def Fire(function):
    given, words = {}, sys.argv[1:]
    while words:
        name, equals, value = words.pop(0).removeprefix("--").partition("=")
        value = value if equals else words.pop(0)
        try:
            given[name.replace("-", "_")] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            given[name.replace("-", "_")] = value
    function(**given)
