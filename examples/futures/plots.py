"""Draw loss.png, memory.png and results.png."""

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt


def draw(output, metadata, earned):
    memory = list(zip(*metadata["memory"], strict=True))
    names = ("process", "tensors on the GPU", "held by the allocator")
    for file, label, lines in (
        ("loss.png", "loss", {"": metadata["loss_curve"]}),
        ("memory.png", "MiB", dict(zip(names, memory[1:], strict=True))),
        ("results.png", "ticks earned after costs", {"": earned}),
    ):
        figure, axes = plt.subplots()
        for name, values in lines.items():
            axes.plot(values, label=name)
        axes.set(ylabel=label, xlabel="bar" if file == "results.png" else "point of the run")
        if len(lines) > 1:
            axes.legend()
        figure.savefig(output / file)
        print(f"wrote {output / file}")
