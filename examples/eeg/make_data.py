"""Make recordings that look a little like EEG, of subjects with known factors and responses.

They share a head: noise and rhythms from places below the scalp. Attention makes theta stronger,
the externalizing factor alpha stronger and faster, the internalizing one moves it sideways. A
potential builds up before each button press in the active task, and at times in a film, which has
no labels.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from formats import WRITERS
from signals import ACTIVE, FACTORS, Windows, cut

RATE = 500  # samples a second of a recording, as in HBN
REST, FILM = "RestingState", "ThePresent"
SIZES = {"channels": 32, "subjects": 120, "rest": 6, "film": 6, "trials": 8}
PRESETS = {
    "small": {"channels": 16, "subjects": 48, "rest": 4, "film": 4, "trials": 6},
    "note": {"channels": 129, "subjects": 100, "rest": 15, "film": 15, "trials": 12},
}


def sensors(channels):
    """Return places on the scalp, seen from above, from the back to the front; the last is Cz."""
    order = np.arange(channels - 1)
    angle, radius = order * 2.399963, np.sqrt((order + 0.5) / (channels - 1))
    places = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.vstack([places[np.argsort(places[:, 1])], [0.0, 0.0]])


def reach(places, at):
    """How strongly each sensor (last axis) sees a source at each place."""
    distance = np.linalg.norm(places[..., None, :] - at, axis=-1)
    return np.exp(-((distance / 0.5) ** 2))


def brown_noise(rng, count, samples):
    spectrum = np.fft.rfft(rng.standard_normal((count, samples)))
    spectrum /= np.maximum(np.fft.rfftfreq(samples, 1 / RATE), 1.0)
    noise = np.fft.irfft(spectrum, samples)
    return noise / noise.std(axis=1, keepdims=True)


def rhythm(rng, hertz, seconds):
    """Return a wave that swells and fades, and whose phase wanders."""
    wander = np.cumsum(rng.standard_normal(len(seconds))) * np.sqrt(0.5 / RATE)
    fade = 1 + 0.5 * np.sin(2 * np.pi * (0.2 * seconds + rng.random()))
    return fade * np.sin(2 * np.pi * (hertz * seconds + rng.random()) + wander)


class Subject:
    def __init__(self, seed, number):
        self.rng = np.random.default_rng([seed, number])
        common, *own = self.rng.standard_normal(4)
        attention, internalizing, externalizing = 0.5 * common + 0.87 * np.array(own)
        p_factor = np.mean([attention, internalizing, externalizing]) + 0.2 * self.rng.normal()
        self.factors = [float(x) for x in (p_factor, attention, internalizing, externalizing)]
        self.slowness = 1.45 + 0.2 * self.rng.normal()  # seconds to a response
        self.noise = self.rng.uniform(2, 4)

    def record(self, task, seconds, at, trials=0):
        """Return channels x samples in microvolts, and events: time and what happened."""
        rng, moments = self.rng, np.arange(int(seconds * RATE)) / RATE
        _, attention, internalizing, externalizing = self.factors
        order = np.arange(5)
        angle, noisy = order * 2.399963, 0.9 * np.sqrt((order + 0.5) / 5)[:, None]
        noisy = noisy * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        noisy += 0.05 * rng.standard_normal(noisy.shape)
        signals = 5 * reach(noisy, at).T @ brown_noise(rng, 5, len(moments))
        signals += self.noise * rng.standard_normal(signals.shape)
        alpha = 12 * np.exp(0.4 * externalizing)
        alpha = alpha * rhythm(rng, 10 + 1.2 * np.clip(externalizing, -2, 2), moments)
        theta = 6 * np.exp(0.5 * attention) * rhythm(rng, 5.5, moments)
        for place, wave in (((0.35 * internalizing, -0.7), alpha), ((0.0, 0.6), theta)):
            signals += reach(np.array(place), at)[:, None] * wave
        events, peaks = [], []
        if task == FILM:
            peaks = np.cumsum(rng.uniform(1.0, 2.5, int(seconds)))
        for number in range(trials):
            side = rng.choice(["left", "right"])
            target = 0.2 + 3.5 * number + 0.3 * rng.random()
            response = np.clip(self.slowness * np.exp(0.2 * rng.normal()), 0.8, 2.3)
            events += [(target, f"{side}_target"), (target + response, f"{side}_buttonPress")]
            peaks.append(target + response + 0.05 * rng.normal())
        for peak in peaks:
            since = moments - peak
            build_up = np.where(since < 0, np.exp(since / 0.25), np.exp(-((since / 0.12) ** 2)))
            size = 30 * np.exp(0.3 * rng.normal())
            signals += size * reach(np.array([0.0, -0.3]), at)[:, None] * build_up
        return signals, events


def write_recording(bids, subject, task, recording, writer):
    signals, events = recording
    folder = bids / subject / "eeg"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{subject}_task-{task}"
    names = [f"E{n}" for n in range(1, len(signals))] + ["Cz"]
    writer(folder / f"{stem}_eeg", signals, RATE, names)
    about = {"TaskName": task, "SamplingFrequency": RATE, "EEGReference": "Cz"}
    (folder / f"{stem}_eeg.json").write_text(json.dumps(about) + "\n")
    rows = ["onset\tduration\tvalue"] + [f"{onset:.4f}\t0\t{value}" for onset, value in events]
    (folder / f"{stem}_events.tsv").write_text("\n".join(rows) + "\n")


def make_data(output=None, bids=None, seed=0, **sizes):
    """Write windows, or a BIDS folder in which the three formats take turns."""
    sizes = SIZES | sizes
    at = sensors(sizes["channels"])
    windows, people = Windows(), ["\t".join(("participant_id", *FACTORS))]
    for number in range(sizes["subjects"]):
        subject, name = Subject(seed, number), f"sub-MADE{number:05d}"
        people.append("\t".join([name, *(f"{factor:.5f}" for factor in subject.factors)]))
        for task, seconds, trials in (
            (REST, 2 * sizes["rest"], 0),
            (FILM, 2 * sizes["film"], 0),
            (ACTIVE, 3.5 * sizes["trials"] + 1, sizes["trials"]),
        ):
            recording = subject.record(task, seconds, at, trials)
            if bids:
                write_recording(bids, name, task, recording, WRITERS[number % len(WRITERS)])
            else:
                found, responses = cut(recording[0], RATE, task, recording[1])
                windows.add(number, task, subject.factors, found, responses)
    if bids:
        about = {"Name": "made up", "BIDSVersion": "1.9.0", "DatasetType": "raw"}
        (bids / "dataset_description.json").write_text(json.dumps(about) + "\n")
        (bids / "participants.tsv").write_text("\n".join(people) + "\n")
        print(f"{bids}: {sizes['subjects']} subjects")
    else:
        windows.save(output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=PRESETS, help="sizes; each can still be given")
    parser.add_argument("--output", type=Path, default=Path("data"), help="for windows")
    parser.add_argument("--bids", type=Path, help="write recordings to this folder instead")
    parser.add_argument("--seed", type=int, default=0)
    for size, default in SIZES.items():
        parser.add_argument(f"--{size}", type=int, default=default)
    parser.set_defaults(**PRESETS.get(parser.parse_known_args()[0].preset, {}))
    given = vars(parser.parse_args())
    del given["preset"]
    make_data(**given)
