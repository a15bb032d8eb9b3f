"""Teach a small GPT-2 to add, one digit per token. Resumes where it stopped."""

import torch
from rocsteady_train.integrations.transformers import RocsteadyCallback, newest_checkpoint
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

DIGITS = {letter: token for token, letter in enumerate("0123456789+=")}


def sums() -> list[dict[str, torch.Tensor]]:
    texts = [f"{a:02}+{b:02}={a + b:03}" for a in range(0, 100, 3) for b in range(100)]
    rows = [torch.tensor([DIGITS[letter] for letter in text]) for text in texts]
    return [{"input_ids": row, "labels": row} for row in rows]


class CarefulTrainer(Trainer):
    def training_step(self, *args: object, **kwargs: object) -> torch.Tensor:
        loss = super().training_step(*args, **kwargs)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss.item()}")
        return loss


def main() -> None:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(DIGITS),
        n_positions=16,
        n_embd=64,
        n_layer=2,
        n_head=4,
        bos_token_id=None,
        eos_token_id=None,
    )
    args = TrainingArguments(
        output_dir="checkpoints",
        max_steps=200,
        per_device_train_batch_size=16,
        learning_rate=1e-3,
        save_steps=10,
        save_total_limit=3,
        logging_steps=20,
        logging_nan_inf_filter=False,  # otherwise the Trainer hides a NaN loss from its log
        disable_tqdm=True,
        report_to="none",
    )
    trainer = CarefulTrainer(
        model=GPT2LMHeadModel(config),
        args=args,
        train_dataset=sums(),
        callbacks=[RocsteadyCallback()],
    )
    trainer.train(resume_from_checkpoint=newest_checkpoint(args.output_dir))
    trainer.save_model("model")
    print(f"done at step {trainer.state.global_step}")


if __name__ == "__main__":
    main()
