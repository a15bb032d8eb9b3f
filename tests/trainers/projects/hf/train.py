"""A Trainer script as people write it; --resume_from_checkpoint goes to trainer.train()."""

import argparse

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer,
    TrainingArguments, set_seed,
)

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", default="out")
parser.add_argument("--resume_from_checkpoint")
args = parser.parse_args()
set_seed(0)
tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
data = load_dataset("json", data_files="data/train.jsonl", split="train")
data = data.map(lambda row: tokenizer(row["text"], truncation=True, max_length=64),
                remove_columns=["text"]).train_test_split(48, seed=0)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=args.output_dir, per_device_train_batch_size=4, num_train_epochs=2,
        save_steps=20, eval_strategy="steps", eval_steps=50, logging_steps=20,
        dataloader_num_workers=1, report_to="none", use_cpu=True, seed=0,
    ),
    train_dataset=data["train"], eval_dataset=data["test"],
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
trainer.save_model("final")
