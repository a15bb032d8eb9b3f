"""The user's own configuration: what holds for every run, beside what its job file says."""

from __future__ import annotations

from rocsteady.errors import JobError
from rocsteady.job.job_file import checked
from rocsteady.job.metrics import Metrics, metrics_problems
from rocsteady.job.notify import Notify, notify_problems
from rocsteady.model import Value
from rocsteady.toml import parse_toml
from rocsteady.untrusted_file import read_regular
from rocsteady.user_folders import config_folder

FILE = "config.toml"  # in the user's configuration folder
SIZE_LIMIT = 64 * 1024  # bytes


class Configuration(Value, frozen=True, kw_only=True):
    """What it may say."""

    notify: Notify | None = None
    metrics: Metrics | None = None


def user_configuration() -> Configuration:
    """Return what the user's own configuration says."""
    path = config_folder() / FILE
    try:
        text = read_regular(path, SIZE_LIMIT).decode()
    except FileNotFoundError:
        return Configuration()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path}: {getattr(error, 'strerror', '') or error}") from None
    try:
        found = checked(parse_toml(text), Configuration)
    except ValueError as error:
        raise JobError(f"{path}: {error}") from None
    for key, problem in (*notify_problems(found.notify), *metrics_problems(found.metrics)):
        raise JobError(f"{path}: {key}: {problem}")
    return found
