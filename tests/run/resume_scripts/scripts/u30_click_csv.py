"""click options, and a CSV of losses that is appended to."""
import csv
import os
import time

import click
import torch


@click.command()
@click.option("--steps", default=60, show_default=True)
@click.option("--checkpoint-dir", default="ckpts", type=click.Path())
@click.option("--resume", "resume_path", default=None, type=click.Path(exists=True), help="Checkpoint file.")
def main(steps, checkpoint_dir, resume_path):
    os.makedirs(checkpoint_dir, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    start = 0
    if resume_path:
        state = torch.load(resume_path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"] + 1
    with open("losses.csv", "a", newline="") as file:
        writer = csv.writer(file)
        for step in range(start, steps):
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
            writer.writerow([step, loss.item()])
            file.flush()
            if step % 10 == 9:
                click.echo(f"step {step} loss {loss.item():.4f}")
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                           os.path.join(checkpoint_dir, f"{step}.pt"))
    torch.save(model.state_dict(), "final.pt")


if __name__ == "__main__":
    main()
