"""transformers: continues from the last checkpoint-N of the output folder, if there is one."""
import os

import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

OUTPUT = "results"


def main():
    args = TrainingArguments(output_dir=OUTPUT, max_steps=60, save_steps=10)
    torch.manual_seed(args.seed)
    model = torch.nn.Linear(4, 1)
    trainer = Trainer(model=model, args=args)
    last = get_last_checkpoint(OUTPUT) if os.path.isdir(OUTPUT) else None
    trainer.train(resume_from_checkpoint=last)
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
