"""Draw loss.png, and results.png: held-out images with the boxes that were found."""

import csv

import matplotlib as mpl
import torch
from model import SIZE, Drawings, boxes_of

mpl.use("Agg")
from matplotlib import pyplot as plt


def draw(output, model, args, labels):
    with (output / "curve.csv").open() as file:
        curve = {
            int(step): float(loss) for step, loss in csv.reader(file)
        }  # a step made twice: once
    figure, axes = plt.subplots()
    axes.plot(sorted(curve), [curve[step] for step in sorted(curve)])
    axes.set(xlabel="step", ylabel="loss")
    figure.savefig(output / "loss.png")
    drawings = Drawings(args.data, labels["held_out"][:6])
    figure, places = plt.subplots(2, 3)
    for place, (image, _) in zip(places.flat, drawings, strict=False):
        place.imshow(image.permute(1, 2, 0))
        place.axis("off")
        with torch.no_grad():
            found = boxes_of(model(image[None].float() / 255)[0])
        for _, kind, *box in found:
            left, top, right, bottom = (SIZE * side for side in box)
            shape = plt.Rectangle((left, top), right - left, bottom - top, fill=False, color="red")
            place.add_patch(shape)
            place.text(left, top, labels["classes"][kind], color="red", fontsize=6)
    figure.savefig(output / "results.png")
    print(f"wrote {output / 'loss.png'} and {output / 'results.png'}")
