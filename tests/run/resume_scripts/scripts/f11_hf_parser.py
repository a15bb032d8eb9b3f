"""transformers: HfArgumentParser gives --resume_from_checkpoint, which the script hands on."""
from dataclasses import dataclass

import torch
from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    model_name_or_path: str = "tiny"


def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    torch.manual_seed(training_args.seed)
    model = torch.nn.Linear(4, 1)
    trainer = Trainer(model=model, args=training_args, train_dataset=None)
    checkpoint = None
    if training_args.resume_from_checkpoint is not None:
        checkpoint = training_args.resume_from_checkpoint
    trainer.train(resume_from_checkpoint=checkpoint)
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
