"""Stand-in: tyro.cli of a flat dataclass; --a-b and --a_b are the same."""
import argparse
import dataclasses


def cli(cls):
    parser = argparse.ArgumentParser()
    for f in dataclasses.fields(cls):
        kind = type(f.default) if f.default is not None else str
        names = dict.fromkeys([f"--{f.name.replace('_', '-')}", f"--{f.name}"])
        parser.add_argument(*names, dest=f.name, type=kind, default=f.default)
    return cls(**vars(parser.parse_args()))
