"""Make synthetic many-channel signals that look a little like EEG, with two labels each.

Each window is 2 s of 16 channels: brown noise from a few places below the scalp, noise of each
sensor, one rhythm (theta, alpha, beta or gamma) and, in most windows, the answer to a stimulus on
the left or on the right, which appears on the other side of the head. Subjects differ in the gain
of their sensors, in their noise and in where their rhythms sit.
"""

import argparse
from pathlib import Path

import numpy as np

RATE = 128  # samples a second
SAMPLES = 2 * RATE
RHYTHMS = {"theta": (4.5, 7.0), "alpha": (9.0, 12.0), "beta": (16.0, 22.0), "gamma": (28.0, 36.0)}
RHYTHM_SHARES = (0.2, 0.4, 0.25, 0.15)
STIMULI = ("none", "left", "right")
STIMULUS_SHARES = (0.4, 0.3, 0.3)
GRID = np.linspace(-1, 1, 4)
SENSORS = np.array([(x, y) for y in GRID for x in GRID])  # 16 places on the scalp, seen from above


def reach(places):
    """How strongly each sensor (last axis) sees a source at each place."""
    distance = np.linalg.norm(places[..., None, :] - SENSORS, axis=-1)
    return np.exp(-((distance / 0.8) ** 2))


def brown_noise(rng, shape):
    spectrum = np.fft.rfft(rng.standard_normal((*shape, SAMPLES)))
    spectrum /= np.maximum(np.arange(spectrum.shape[-1]), 2)
    noise = np.fft.irfft(spectrum, SAMPLES)
    return noise / noise.std()


def make_subject(rng, windows):
    """Return the signals (windows, channels, samples) of one subject, and both labels."""
    seconds = np.arange(SAMPLES) / RATE
    rhythm = rng.choice(len(RHYTHMS), windows, p=RHYTHM_SHARES)
    stimulus = rng.choice(len(STIMULI), windows, p=STIMULUS_SHARES)

    # The background: five sources anywhere, and what each sensor adds by itself.
    sources = reach(rng.uniform(-1, 1, (windows, 5, 2)))
    signals = np.einsum("wsc,wst->wct", sources, brown_noise(rng, (windows, 5)))
    signals += rng.uniform(0.1, 0.3) * rng.standard_normal(signals.shape)

    # The rhythm: a wave that swells and fades, near one place of this subject.
    low, high = np.array(list(RHYTHMS.values()))[rhythm].T
    frequency = rng.uniform(low, high)[:, None]
    phase, fade = rng.uniform(0, 2 * np.pi, (2, windows, 1))
    wave = np.sin(2 * np.pi * frequency * seconds + phase)
    wave *= 1 + 0.5 * np.sin(2 * np.pi * 0.5 * seconds + fade)
    place = rng.uniform(-0.5, 0.5, 2) + 0.3 * rng.standard_normal((windows, 2))
    strength = rng.uniform(0.5, 2.0, (windows, 1, 1))
    signals += strength * reach(place)[:, :, None] * wave[:, None, :]

    # The answer: down, then up, at the back of the other side, at any moment.
    side = np.array([0.0, 0.7, -0.7])[stimulus]
    place = np.stack([side, np.full(windows, -0.6)], axis=1)
    place += 0.15 * rng.standard_normal(place.shape)
    since = seconds - rng.uniform(0.3, 1.5, (windows, 1))
    answer = np.exp(-((since / 0.08) ** 2)) - np.exp(-(((since + 0.15) / 0.06) ** 2))
    strength = rng.uniform(2.0, 5.0, (windows, 1, 1)) * (stimulus > 0)[:, None, None]
    signals += strength * reach(place)[:, :, None] * answer[:, None, :]

    signals *= rng.uniform(0.7, 1.3, (1, len(SENSORS), 1))
    return signals.astype(np.float16), rhythm, stimulus


def make_data(path, subjects=50, windows=60, seed=0):
    """Write the windows of all subjects to one .npz file. Nothing half-written has its name."""
    rng = np.random.default_rng(seed)
    signals, rhythm, stimulus = zip(
        *(make_subject(rng, windows) for _ in range(subjects)), strict=True
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as stream:
        np.savez(
            stream,
            signals=np.concatenate(signals),
            rhythm=np.concatenate(rhythm),
            stimulus=np.concatenate(stimulus),
            subject=np.repeat(np.arange(subjects), windows),
        )
    temporary.replace(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="signals.npz")
    parser.add_argument("--subjects", type=int, default=50)
    parser.add_argument("--windows", type=int, default=60, help="of each subject")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    make_data(args.output, args.subjects, args.windows, args.seed)
    print(f"{args.output}: {args.subjects * args.windows} windows of {args.subjects} subjects")
