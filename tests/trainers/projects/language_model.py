"""Make a tiny causal language model with a tokenizer, and sentences to train it on. No hub."""

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

random.seed(0)
WORDS = "the a red blue small large dog cat bird sees finds likes keeps under over near".split()
sentences = [" ".join(random.choices(WORDS, k=24)) for _ in range(480)]

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
special = ["<s>", "</s>", "<pad>"]
trainer = trainers.BpeTrainer(
    vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
)
tokenizer.train_from_iterator(sentences, trainer)
fast = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
)
fast.model_max_length = 128
fast.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
fast.save_pretrained("model")
config = LlamaConfig(
    vocab_size=len(fast), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128,
    bos_token_id=0, eos_token_id=1, pad_token_id=2,
)
LlamaForCausalLM(config).save_pretrained("model")

folder = Path("data")
folder.mkdir(exist_ok=True)
with (folder / "train.jsonl").open("w") as file:
    for text in sentences:
        file.write(json.dumps({"text": text}) + "\n")
asked = [{"instruction": text[:40], "input": "", "output": text[40:]} for text in sentences]
(folder / "asked.json").write_text(json.dumps(asked))
(folder / "dataset_info.json").write_text(json.dumps({"tiny": {"file_name": "asked.json"}}))
