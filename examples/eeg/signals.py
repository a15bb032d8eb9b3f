"""From recordings to windows: filter, resample, cut. numpy only.

A window is what the challenge hands to a model: 2 s at 100 Hz of all channels, in microvolts. In
the active task it begins 0.5 s after a target, and its label is the time until the button.
"""

import json

import numpy as np

RATE = 100  # samples a second of a window
SAMPLES = 2 * RATE
LOW, HIGH = 0.5, 45.0  # Hz, the pass band
ACTIVE = "contrastChangeDetection"
AFTER_TARGET = 0.5  # seconds
TARGETS = ("left_target", "right_target")
PRESSES = ("left_buttonPress", "right_buttonPress")
FACTORS = ("p_factor", "attention", "internalizing", "externalizing")


def clean(signals, rate):
    """Pass LOW to HIGH, and resample to RATE: both at once, in the spectrum."""
    margin = min(2 * int(rate), signals.shape[1] - 1)  # mirrored, so that the ends do not meet
    padded = np.pad(signals, ((0, 0), (margin, margin)), mode="reflect")
    count = padded.shape[1]
    wanted = round(count * RATE / rate)
    spectrum = np.fft.rfft(padded)[:, : wanted // 2 + 1]
    hertz = np.arange(spectrum.shape[1]) * rate / count
    rise = np.clip((hertz - LOW / 2) / (LOW / 2), 0, 1)
    fall = np.clip((RATE / 2 - hertz) / (RATE / 2 - HIGH), 0, 1)
    kept = np.sin(np.pi / 2 * rise) ** 2 * np.sin(np.pi / 2 * fall) ** 2
    resampled = np.fft.irfft(spectrum * kept, wanted) * (wanted / count)
    first = round(margin * RATE / rate)
    return resampled[:, first : first + round(signals.shape[1] * RATE / rate)]


def trials(events):
    """Return the time of each target, and the seconds from it to the button, if it was pressed."""
    found = []
    for onset, value in sorted(events):
        if value in TARGETS:
            found.append([onset, np.nan])
        elif value in PRESSES and found and np.isnan(found[-1][1]):
            found[-1][1] = onset - found[-1][0]
    return [trial for trial in found if np.isfinite(trial[1])]


def cut(signals, rate, task, events):
    """Return the windows of a recording, and of each the response time; NaN if there is none."""
    signals = clean(signals, rate)
    if task == ACTIVE:
        starts = [(target + AFTER_TARGET, response) for target, response in trials(events)]
    else:
        seconds = SAMPLES / RATE
        starts = [(n * seconds, np.nan) for n in range(signals.shape[1] // SAMPLES)]
    places = [(round(start * RATE), response) for start, response in starts]
    places = [place for place in places if place[0] + SAMPLES <= signals.shape[1]]
    windows = [signals[:, first : first + SAMPLES] for first, _ in places]
    shape = (0, len(signals), SAMPLES)
    return (
        np.stack(windows).astype(np.float16) if windows else np.empty(shape, np.float16),
        np.array([response for _, response in places], np.float32),
    )


class Windows:
    """The windows of all recordings, gathered and written to a folder."""

    def __init__(self):
        self.parts, self.tasks, self.subjects = [], [], 0

    def add(self, subject, task, factors, windows, responses):
        if task not in self.tasks:
            self.tasks.append(task)
        count = len(windows)
        self.subjects = max(self.subjects, subject + 1)
        self.parts.append(
            {
                "signals": windows,
                "response": responses,
                "subject": np.full(count, subject),
                "active": np.full(count, task == ACTIVE),
                "factors": np.tile(np.float32(factors), (count, 1)),
            }
        )

    def save(self, folder):
        """Write signals.npy and labels.npz. Nothing half-written bears these names."""
        folder.mkdir(parents=True, exist_ok=True)
        whole = {name: np.concatenate([p[name] for p in self.parts]) for name in self.parts[0]}
        signals = whole.pop("signals")
        for name, write in (
            ("signals.npy", lambda file: np.save(file, signals)),
            ("labels.npz", lambda file: np.savez(file, **whole)),
        ):
            unfinished = folder / f"{name}.unfinished"
            with unfinished.open("wb") as file:
                write(file)
            unfinished.replace(folder / name)
        about = {"rate": RATE, "tasks": self.tasks, "subjects": self.subjects}
        (folder / "about.json").write_text(json.dumps(about) + "\n")
        print(f"{folder}: {len(signals)} windows of {self.subjects} subjects, {signals.shape[1:]}")
