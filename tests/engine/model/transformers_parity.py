"""Loss and every gradient of marea's blocks beside Hugging Face Transformers on the same weights.

    transformers_parity.py DRIVER CASE...

Builds a small random model of each CASE, writes it and some batches to a temporary folder, runs DRIVER
(parity_driver) on them, and compares: relative 1e-5 in fp32, 2e-2 in bf16. A bf16 gradient is set
beside the fp32 one, and may miss it by more only where Transformers' own bf16 does too.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

SEQUENCES, LENGTH, MICRO_BATCHES = 2, 33, 3
LLAMA = dict(hidden_size=64, intermediate_size=176, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=256, max_position_embeddings=128,
             initializer_range=0.1, bos_token_id=None, eos_token_id=None)
LLAMA3_ROPE = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32, rope_theta=500000.0)
GPT2 = dict(n_embd=64, n_layer=2, n_head=4, n_positions=128, vocab_size=257, initializer_range=0.1,
            bos_token_id=None, eos_token_id=None)

CASES = {
    "gpt2": lambda: transformers.GPT2Config(**GPT2),
    "gpt2_untied": lambda: transformers.GPT2Config(**GPT2, tie_word_embeddings=False, n_inner=96),
    "llama": lambda: transformers.LlamaConfig(**LLAMA),
    "llama_tied": lambda: transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True),
    "llama_rope3": lambda: transformers.LlamaConfig(**LLAMA, rope_parameters=LLAMA3_ROPE),
    "llama_odd": lambda: transformers.LlamaConfig(
        **{**LLAMA, "num_key_value_heads": 1}, head_dim=24, attention_bias=True, mlp_bias=True,
        pad_token_id=7),
}


def old_rope_form(config):
    """The file as Transformers 4 wrote it: rope_theta and rope_scaling beside each other."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None


def make_model(case):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CASES[case](), attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:  # norms and biases away from their exact ones and zeros
                parameter.add_(0.1 * torch.randn_like(parameter))
            parameter.copy_(parameter.bfloat16().float())  # both precisions start alike
    return model.eval()  # no dropout


def reference(model, dtype, tokens, labels, weights):
    """Weighted mean loss over all micro-batches; gradients summed over them in fp32."""
    model = model.to(dtype)
    total = weights.sum()
    loss_sum, gradients = 0.0, {}
    for i in range(MICRO_BATCHES):
        logits = model(input_ids=tokens[i], use_cache=False).logits.float()
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[i].flatten(), reduction="none")
        loss = (losses * weights[i].flatten()).sum() / total
        loss_sum += loss.item()
        for parameter in model.parameters():
            parameter.grad = None
        loss.backward()
        for name, parameter in model.named_parameters():
            gradients[name] = gradients.get(name, 0) + parameter.grad.float()
    return loss_sum, gradients


def distance(ours, theirs):
    """Of whole tensors, relative to the tensor's norm."""
    return ((ours - theirs).norm() / theirs.norm().clamp_min(1e-30)).item()


def run_driver(driver, folder, model, config_form, precision, batch):
    folder = pathlib.Path(folder)
    config = model.config.to_dict()
    config["architectures"] = [type(model).__name__]
    if config_form == "old" and "rope_parameters" in config:
        old_rope_form(config)
    (folder / "config.json").write_text(json.dumps(config, default=str))
    for part in ("parameters", "gradients"):
        (folder / part).mkdir()
    state = model.state_dict() if not model.config.tie_word_embeddings else {
        k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}
    for name, value in state.items():
        value.float().numpy().tofile(folder / "parameters" / name)
    tokens, labels, weights = batch
    tokens.numpy().astype(numpy.int32).tofile(folder / "tokens.bin")
    labels.numpy().astype(numpy.int32).tofile(folder / "labels.bin")
    weights.numpy().astype(numpy.float32).tofile(folder / "weights.bin")
    output = subprocess.run(
        [driver, folder, str(SEQUENCES), str(LENGTH), str(MICRO_BATCHES), precision],
        check=True, capture_output=True, text=True).stdout
    # Names agree in both directions: every parameter of the model is trained, and nothing else.
    assert sorted((folder / "tensors.txt").read_text().split()) == sorted(state), "tensor names"
    gradients = {name: torch.from_numpy(numpy.fromfile(
        folder / "gradients" / name, dtype=numpy.float32)).view(value.shape)
        for name, value in state.items()}
    return json.loads(output), gradients


def check(name, value, limit, failures):
    print(f"{'ok  ' if value <= limit else 'FAIL'} {name}: {value:.3g} (limit {limit:.3g})")
    if value > limit:
        failures.append(name)


def check_case(driver, case, failures):
    model = make_model(case)
    shape = (MICRO_BATCHES, SEQUENCES, LENGTH)
    tokens = torch.randint(0, model.config.vocab_size, shape)
    labels = torch.randint(0, model.config.vocab_size, shape)
    weights = torch.rand(shape)
    weights[torch.rand(shape) < 0.2] = 0
    weights[1, 0] = 0  # a sequence without loss
    tokens[0, :, :5] = 7  # llama_odd pads with it: its embedding gets no gradient
    batch = (tokens, labels, weights)

    exact_loss, exact = reference(model, torch.float32, *batch)
    runs = [("new", "fp32", 1e-5), ("new", "bf16", 2e-2)]
    if case.startswith("llama"):
        runs.append(("old", "fp32", 1e-5))
    for form, precision, limit in runs:
        with tempfile.TemporaryDirectory() as folder:
            result, ours = run_driver(driver, folder, model, form, precision, batch)
        theirs_loss, theirs = exact_loss, exact
        if precision == "bf16":
            theirs_loss, theirs = reference(make_model(case), torch.bfloat16, *batch)
        label = f"{case} {precision} {form} config"
        for key in ("loss", "eval_loss"):
            check(f"{label} {key}", abs(result[key] / theirs_loss - 1), limit, failures)
        for name, gradient in ours.items():
            # Two roundings of one thing differ more from each other than from the truth, so the
            # measure is the distance to fp32.
            if precision == "bf16":
                truth = distance(theirs[name], exact[name])
                check(f"{label} {name} to fp32", distance(gradient, exact[name]),
                      max(limit, 1.25 * truth), failures)
            else:
                check(f"{label} {name}", distance(gradient, theirs[name]), limit, failures)


def main():
    driver, *cases = sys.argv[1:]
    torch.set_num_threads(2)
    failures = []
    for case in cases:
        check_case(driver, case, failures)
    if failures:
        sys.exit(f"{len(failures)} comparisons failed")


if __name__ == "__main__":
    main()
