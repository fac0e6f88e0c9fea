"""The other side of transformers_test: Transformers itself.

    make FOLDER      saves small random models, one folder each, and safetensors of every float type
    check FOLDER     loads what was made of them and compares every value bit for bit
"""

import os
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


def models():
    torch.manual_seed(0)
    llama = dict(hidden_size=64, intermediate_size=176, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, vocab_size=257, max_position_embeddings=128)
    yield "gpt2", GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=128, vocab_size=257))
    yield "llama", LlamaForCausalLM(LlamaConfig(tie_word_embeddings=False, **llama))
    yield "llama_tied", LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **llama))


def make(folder):
    for name, model in models():
        model.save_pretrained(os.path.join(folder, name))
        model.to(torch.bfloat16).save_pretrained(os.path.join(folder, name + "_bf16"))
    # Every value of 16 bits, as float16 and bfloat16.
    bits = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    save_file({"half": bits.clone().view(torch.float16), "bf16": bits.clone().view(torch.bfloat16), "bits": bits},
              os.path.join(folder, "halves.safetensors"))


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(
        a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def check(folder):
    for name, _ in models():
        for kind in (name, name + "_bf16"):
            made, written = os.path.join(folder, kind), os.path.join(folder, kind, "checkpoint")
            with open(os.path.join(made, "config.json"), "rb") as a, open(os.path.join(written, "config.json"), "rb") as b:
                assert a.read() == b.read(), f"{kind}: config.json differs"
            expected = load_file(os.path.join(made, "model.safetensors"))
            got = load_file(os.path.join(written, "model.safetensors"))
            assert sorted(expected) == sorted(got), f"{kind}: {sorted(set(expected) ^ set(got))}"
            for key in expected:
                assert same_bits(expected[key], got[key]), f"{kind}: {key} differs"
            loaded, info = AutoModelForCausalLM.from_pretrained(written, output_loading_info=True, dtype="auto")
            assert not info["missing_keys"] and not info["unexpected_keys"], f"{kind}: {info}"
            original = AutoModelForCausalLM.from_pretrained(made, dtype="auto")
            for (key, a), (_, b) in zip(original.state_dict().items(), loaded.state_dict().items()):
                assert same_bits(a, b), f"{kind}: {key} differs once loaded"
    # The floats that were read from the 16-bit values.
    halves = load_file(os.path.join(folder, "halves.safetensors"))
    floats = load_file(os.path.join(folder, "floats.safetensors"))
    for key in ("half", "bf16"):
        expected = halves[key].float()
        finite = ~expected.isnan()
        assert torch.equal(floats[key][finite].view(torch.int32), expected[finite].view(torch.int32)), key
        assert floats[key][~finite].isnan().all(), key


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](sys.argv[2])
