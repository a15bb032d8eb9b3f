"""Write a recording as BrainVision, EDF or EEGLAB do: small files, for what reads the real ones."""

import numpy as np

STEP = 0.1  # microvolts, the resolution of what is stored in 16 bits


def _stored(signals):
    return np.clip(np.rint(signals / STEP), -32_768, 32_767).astype("<i2")


def write_brainvision(path, signals, rate, names):
    """Write .vhdr, .eeg and .vmrk."""
    binary, markers = path.with_suffix(".eeg"), path.with_suffix(".vmrk")
    _stored(signals).T.tofile(binary)
    channels = "\n".join(f"Ch{n}={name},,{STEP},µV" for n, name in enumerate(names, 1))
    path.with_suffix(".vhdr").write_text(
        "BrainVision Data Exchange Header File Version 1.0\n"
        f"[Common Infos]\nCodepage=UTF-8\nDataFile={binary.name}\nMarkerFile={markers.name}\n"
        "DataFormat=BINARY\nDataOrientation=MULTIPLEXED\n"
        f"NumberOfChannels={len(names)}\nSamplingInterval={1e6 / rate:.0f}\n"
        f"[Binary Infos]\nBinaryFormat=INT_16\n[Channel Infos]\n{channels}\n",
        encoding="utf-8",
    )
    markers.write_text(
        "BrainVision Data Exchange Marker File, Version 1.0\n"
        f"[Common Infos]\nCodepage=UTF-8\nDataFile={binary.name}\n"
        "[Marker Infos]\nMk1=New Segment,,1,1,0,20250101000000000000\n",
        encoding="utf-8",
    )


def write_edf(path, signals, rate, names):
    """Write .edf: a header in text, then a record for each second."""
    count, seconds = len(names), -(-signals.shape[1] // rate)
    padded = np.pad(signals, ((0, 0), (0, seconds * rate - signals.shape[1])), mode="edge")
    limit = 32_767 * STEP

    def fields(width, values):
        return "".join(f"{value:<{width}}"[:width] for value in values)

    header = fields(8, ["0"]) + fields(80, ["X X X X"]) + fields(80, ["Startdate X X X X"])
    header += "01.01.2500.00.00" + fields(8, [256 * (count + 1)]) + fields(44, [""])
    header += fields(8, [seconds]) + fields(8, ["1"]) + fields(4, [count])
    header += fields(16, names) + fields(80, [""] * count) + fields(8, ["uV"] * count)
    header += fields(8, [f"{-limit:.1f}"] * count) + fields(8, [f"{limit:.1f}"] * count)
    header += fields(8, [-32_767] * count) + fields(8, [32_767] * count)
    header += fields(80, [""] * count) + fields(8, [rate] * count) + fields(32, [""] * count)
    records = _stored(padded).reshape(count, seconds, rate).transpose(1, 0, 2)
    path.with_suffix(".edf").write_bytes(header.encode("ascii") + records.tobytes())


def write_eeglab(path, signals, rate, names):
    """Write .set, which is a MATLAB file."""
    from scipy.io import savemat  # noqa: PLC0415 - it comes with mne

    places = np.zeros(len(names), dtype=[("labels", object), ("type", object)])
    places["labels"], places["type"] = names, "EEG"
    empty = np.empty((0, 0))
    dataset = {
        "setname": path.stem, "data": (STEP * _stored(signals)).astype(np.float32),
        "nbchan": float(len(names)), "pnts": float(signals.shape[1]), "trials": 1.0,
        "srate": float(rate), "xmin": 0.0, "xmax": (signals.shape[1] - 1) / rate,
        "times": empty, "chanlocs": places, "event": empty, "epoch": empty, "ref": "common",
        "icawinv": empty, "icasphere": empty, "icaweights": empty, "icaact": empty,
    }  # fmt: skip
    savemat(path.with_suffix(".set"), {"EEG": dataset})


WRITERS = (write_brainvision, write_edf, write_eeglab)
