"""Stand-in: commands with plain options."""
import argparse
import functools


def Path(exists=False):
    return str


def echo(text):
    print(text, flush=True)


def option(*names, default=None, type=None, help=None, show_default=False):
    def around(function):
        flags = [n for n in names if n.startswith("-")]
        dest = next((n for n in names if not n.startswith("-")), flags[-1].lstrip("-").replace("-", "_"))
        kind = type or (str if default is None else default.__class__)
        function.options = [(flags, dest, default, kind), *getattr(function, "options", [])]
        return function

    return around


def command():
    def around(function):
        @functools.wraps(function)
        def run():
            parser = argparse.ArgumentParser()
            for flags, dest, default, kind in function.options:
                parser.add_argument(*flags, dest=dest, default=default, type=kind)
            return function(**vars(parser.parse_args()))

        return run

    return around
