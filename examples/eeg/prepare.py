"""Turn a BIDS folder, such as a release of HBN, into windows: python prepare.py FOLDER.

Reads BrainVision, EDF, BDF and EEGLAB files with mne, events from _events.tsv and the factors of
each subject from participants.tsv. A recording that cannot be used is named and left out.
"""

import argparse
import csv
import re
from pathlib import Path

import numpy as np
from signals import FACTORS, Windows, cut

SUFFIXES = (".vhdr", ".edf", ".bdf", ".set")


def read_table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def number(text):
    """Return a number of a table; NaN for n/a."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return np.nan


def read_recording(path):
    """Return channels x samples in microvolts, and samples a second."""
    import mne  # noqa: PLC0415 - only this needs it

    raw = mne.io.read_raw(path, preload=True, verbose="error")
    raw.pick("eeg")
    return 1e6 * raw.get_data(), raw.info["sfreq"]


def read_events(path):
    table = path.with_name(re.sub(r"_eeg\.\w+$", "_events.tsv", path.name))
    rows = read_table(table) if table.exists() else []
    return [(number(row["onset"]), row.get("value", "")) for row in rows]


def prepare(bids, output):
    people = {row["participant_id"]: row for row in read_table(bids / "participants.tsv")}
    subjects = {name: place for place, name in enumerate(sorted(people))}
    windows = Windows()
    channels = None
    for path in sorted(bids.glob("sub-*/**/*_eeg.*")):
        if path.suffix not in SUFFIXES:
            continue
        subject = re.match(r"sub-[^_]+", path.name).group()
        task = re.search(r"_task-([^_]+)", path.name).group(1)
        signals, rate = read_recording(path)
        channels = channels or len(signals)
        found, responses = cut(signals, rate, task, read_events(path))
        if subject not in people or len(signals) != channels or len(found) == 0:
            print(f"{path.name}: left out ({len(signals)} channels, {len(found)} windows)")
            continue
        factors = [number(people[subject].get(name)) for name in FACTORS]
        windows.add(subjects[subject], task, factors, found, responses)
    if not windows.parts:
        raise SystemExit(f"no recording in {bids} can be used")
    windows.save(output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bids", type=Path)
    parser.add_argument("--output", type=Path, default=Path("data"))
    args = parser.parse_args()
    prepare(args.bids, args.output)
