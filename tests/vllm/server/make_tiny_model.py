"""Makes a model of a few million random parameters in the folder that is its second argument: a
Llama, or a Mixtral with four experts.

Runs in an environment that has vLLM.
"""

import sys

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedTokenizerFast,
)

WORDS = 4096


SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def main(kind: str, folder: str) -> None:
    """Write config, weights and tokenizer."""
    torch.manual_seed(0)
    if kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**SIZES))
    else:
        model = MixtralForCausalLM(
            MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)
        )
    model.to(torch.bfloat16).save_pretrained(folder)
    words = {"<s>": 0, "</s>": 1, "<unk>": 2}
    words |= {f"w{number}": number for number in range(len(words), WORDS)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
