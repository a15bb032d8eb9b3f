"""Draw loss.png, and results.png: what was predicted against what is true."""

import matplotlib as mpl

mpl.use("Agg")
from evaluate import COUNTS, NAMES
from matplotlib import pyplot as plt


def draw(output, metadata, found):
    figure, axes = plt.subplots()
    for phase in dict.fromkeys(point[1] for point in metadata["curve"]):
        points = [(step, loss) for step, name, loss in metadata["curve"] if name == phase]
        axes.plot(*zip(*points, strict=True), label=phase)
    axes.set(xlabel="step", ylabel="loss")
    axes.legend()
    figure.savefig(output / "loss.png")
    figure, places = plt.subplots(1, 2, figsize=(9, 4))
    for place, (phase, (guessed, true)) in zip(places, found.items(), strict=True):
        name = COUNTS[phase][0]
        column = NAMES[phase].index(name)
        place.scatter(true[:, column], guessed[:, column], s=6)
        ends = [true[:, column].min(), true[:, column].max()]
        place.plot(ends, ends, color="grey")
        place.set(xlabel=f"true {name}", ylabel="predicted, on held-out subjects")
    figure.tight_layout()
    figure.savefig(output / "results.png")
    print(f"wrote {output / 'loss.png'} and {output / 'results.png'}")
