"""Stand-in: hydra.main with a two-level YAML file and key=value overrides."""
import functools
import os
import sys
from ast import literal_eval

from omegaconf import DictConfig


def _value(text):
    text = text.strip()
    if text in ("null", ""):
        return None
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def main(version_base=None, config_path=None, config_name=None):
    def around(function):
        @functools.wraps(function)
        def run():
            config, group = DictConfig(), None
            here = os.path.dirname(os.path.abspath(sys.argv[0]))
            for line in open(os.path.join(here, config_path, f"{config_name}.yaml")):
                key, _, value = line.partition(":")
                if not value.strip():
                    group = config[key.strip()] = DictConfig()
                elif line.startswith(" "):
                    group[key.strip()] = _value(value)
                else:
                    config[key.strip()] = _value(value)
            for word in sys.argv[1:]:
                key, equals, value = word.lstrip("+").partition("=")
                *outer, last = key.split(".")
                place = config
                for name in outer:
                    place = place[name]
                if not equals or last not in place:
                    raise SystemExit(f"Could not override '{key}'.")
                place[last] = _value(value)
            return function(config)

        return run

    return around
