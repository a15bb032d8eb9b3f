"""Draw loss.png and results.png."""

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt


def draw(output, metadata, found):
    figure, (loss, caught) = plt.subplots(2, sharex=True)
    episodes = [point["episode"] for point in metadata["curve"]]
    loss.plot(episodes, [point["loss"] for point in metadata["curve"]])
    loss.set_ylabel("loss")
    caught.plot(episodes, [point["caught"] for point in metadata["curve"]])
    caught.set(ylabel="share of prey caught", xlabel="episode")
    figure.savefig(output / "loss.png")
    figure, (shares, times) = plt.subplots(1, 2, figsize=(9, 4))
    shares.bar(
        ["caught by predators", "escaped as prey", "baseline"],
        [found["caught_by_predators"], found["escaped_as_prey"], found["baseline"]],
    )
    shares.set_ylabel("share, on held-out episodes")
    shares.tick_params(axis="x", rotation=20)
    times.bar(list(metadata["seconds"]), list(metadata["seconds"].values()))
    times.set_ylabel("seconds; a GPU has nothing to do in the first")
    figure.tight_layout()
    figure.savefig(output / "results.png")
    print(f"wrote {output / 'loss.png'} and {output / 'results.png'}")
