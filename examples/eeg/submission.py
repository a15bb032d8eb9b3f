"""What the challenge imports from submission.zip: both models, ready for windows in microvolts."""

import json
from pathlib import Path
from types import SimpleNamespace

import torch
from model import Encoder, Regressor

HERE = Path(__file__).parent
SECONDS = 2  # of a window
EXTERNALIZING = 3  # among the four factors; it alone is scored


class Submission:
    def __init__(self, SFREQ, DEVICE):  # noqa: N803 - the challenge names them
        self.samples, self.device = int(SECONDS * SFREQ), DEVICE

    def _model(self, challenge, outputs):
        about = json.loads((HERE / "metadata.json").read_text())
        encoder = Encoder(about["channels"], self.samples, SimpleNamespace(**about["arguments"]))
        model = Regressor(encoder, outputs)
        weights = HERE / f"weights_challenge_{challenge}.pt"
        model.load_state_dict(torch.load(weights, weights_only=True, map_location="cpu"))
        return model.to(self.device).eval()

    def get_model_challenge_1(self):
        """Return what answers with the response time in seconds, windows x 1."""
        return self._model(1, 1)

    def get_model_challenge_2(self):
        """Return what answers with the externalizing factor, windows x 1."""
        return Only(self._model(2, 4), EXTERNALIZING)


class Only(torch.nn.Module):
    def __init__(self, model, output):
        super().__init__()
        self.model, self.output = model, output

    def forward(self, signals):
        return self.model(signals)[:, self.output : self.output + 1]
