"""Make PyPI's torchvision, which is built for CUDA, importable beside a CPU build of torch.

Run with the Python of the environment. The one compiled function that trainers need, nms, is
written in Python; all else of torchvision is its own.
"""

import importlib.metadata
from pathlib import Path

MARK = "# for a CPU build of torch\n"
DEFINED = (
    MARK
    + """
import torch as _torch

_library = _torch.library.Library("torchvision", "DEF")
_library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
for _name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"):
    pass


def _nms(dets, scores, iou_threshold):
    order, keep = scores.argsort(descending=True), []
    area = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])
    while order.numel():
        best, order = order[0], order[1:]
        keep.append(best)
        low = _torch.maximum(dets[best, :2], dets[order, :2])
        high = _torch.minimum(dets[best, 2:], dets[order, 2:])
        overlap = (high - low).clamp(min=0).prod(1)
        order = order[overlap / (area[best] + area[order] - overlap) <= iou_threshold]
    return _torch.stack(keep) if keep else scores.new_empty(0, dtype=_torch.int64)


_library.impl("nms", _nms, "CPU")
"""
)

root = Path(str(importlib.metadata.distribution("torchvision").locate_file("torchvision")))
init, extension = root / "__init__.py", root / "extension.py"
if MARK not in init.read_text():
    init.write_text(DEFINED + init.read_text())
    text = extension.read_text()
    extension.write_text(text + "\n\ndef _assert_has_ops():\n    pass\n")
