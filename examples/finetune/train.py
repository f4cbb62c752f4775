"""Fine-tune a causal language model: the Trainer of transformers, with DeepSpeed's ZeRO stage 2.

    rdzv launch --nnodes 2 --nproc-per-node 2 -- examples/finetune/train.py

As it stands it trains a tiny model, made on the spot, on a text that lies in every Python, and
downloads nothing. README.md says how to train a real one. Loss, learning rate, gradient norm and
epoch of each rank go to rdzv, and inside a run of VESSL to VESSL as well.
"""

import argparse
import os
import pathlib
import pydoc_data.topics
import socket
import sys
import tempfile
import zlib

import torch
import torch.distributed as dist
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import rdzv_metrics  # noqa: E402 (it lies one folder up; a copy of it beside this file does as well)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", default="tiny", help="'tiny', a folder, or a name on the hub")
    add("--data", type=pathlib.Path, help="a text file; without it, Python's own reference")
    add("--output", type=pathlib.Path, help="the folder for the trained model; else it is not kept")
    add("--deepspeed", default=str(HERE / "ds_config.json"), help="its configuration, or 'off'")
    add("--steps", type=int, default=30, help="optimizer steps")
    add("--batch", type=int, default=8, help="blocks of text per process and step")
    add("--block", type=int, default=128, help="tokens in a block")
    add("--accumulate", type=int, default=1, help="batches per step")
    add("--learning-rate", type=float, default=2e-3, help="2e-5 or so for a model that is trained")
    add("--checkpointing", action="store_true", help="spend time to save memory")
    add("--check", action="store_true", help="fail unless the loss falls and all ranks agree")
    add("--local_rank", type=int, default=0, help=argparse.SUPPRESS)  # deepspeed's launcher says it
    return parser.parse_args()


def tiny():
    """Return a model of 0.1 million parameters and a tokenizer whose tokens are bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*alphabet, "<end>"])}
    bytewise = Tokenizer(models.BPE(vocabulary, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytewise.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise)
    tokenizer.add_special_tokens({"eos_token": "<end>"})
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        bos_token_id=None,
        eos_token_id=vocabulary["<end>"],
    )
    return LlamaForCausalLM(config), tokenizer


def load(name, dtype):
    if name == "tiny":
        torch.manual_seed(0)  # the same first weights on every rank
        return tiny()
    tokenizer = AutoTokenizer.from_pretrained(name)
    return AutoModelForCausalLM.from_pretrained(name, dtype=dtype), tokenizer


def blocks(tokenizer, path, size):
    """Cut the text into blocks of `size` tokens; a causal model's labels are its inputs."""
    if path is None:
        text = "\n".join(pydoc_data.topics.topics.values())[:200_000]
    else:
        text = path.read_text(encoding="utf-8")
    ids = tokenizer(text, verbose=False)["input_ids"]
    rows = [torch.tensor(ids[at : at + size]) for at in range(0, len(ids) - size + 1, size)]
    if not rows:
        raise SystemExit(f"the text has {len(ids)} tokens, and a block needs {size}")
    return [{"input_ids": row, "labels": row} for row in rows]


def vessl_log():
    """Return VESSL's `log` inside a run of VESSL, and None elsewhere."""
    if "VESSL_RUN_INITIAL_CONFIG" not in os.environ:  # as VESSL's own client asks
        return None
    try:
        import vessl
    except Exception as error:  # noqa: BLE001 (its import asks the network; training goes on)
        print(f"VESSL is not told of the metrics: {error!r}", flush=True)
        return None
    return vessl.log


class Tell(TrainerCallback):
    """Sends what the Trainer logs of a step; not the summary that it logs at the end."""

    NAMES = ("loss", "eval_loss", "learning_rate", "grad_norm", "epoch")

    def __init__(self):
        self.log = None

    def on_train_begin(self, args, state, control, **more):
        if state.is_world_process_zero:
            self.log = vessl_log()

    def on_log(self, args, state, control, logs=None, **more):
        values = {name: float(logs[name]) for name in self.NAMES if name in (logs or {})}
        if not {"loss", "eval_loss"} & values.keys():
            return
        rdzv_metrics.send(state.global_step, values)
        if self.log is not None:
            try:
                self.log(payload=values, step=state.global_step)
            except Exception as error:  # noqa: BLE001 (training is worth more than its curve)
                print(f"VESSL is not told of the metrics any more: {error!r}", flush=True)
                self.log = None


def check(trainer):
    """Fail unless the loss fell and every rank holds the same weights; say so on every rank."""
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if losses[-1] > 0.8 * losses[0]:
        raise SystemExit(f"the loss did not fall: {losses[0]:.3f} to {losses[-1]:.3f}")
    weights = torch.nn.utils.parameters_to_vector(trainer.model.parameters()).detach()
    checksum = zlib.crc32(weights.float().cpu().numpy().tobytes())
    ends = torch.tensor([checksum, -checksum], device=trainer.args.device)
    dist.all_reduce(ends, dist.ReduceOp.MAX)  # the highest, minus the lowest
    if ends.sum() != 0:
        raise SystemExit("the ranks do not hold the same weights")
    where = f"rank={dist.get_rank()} world={dist.get_world_size()} host={socket.gethostname()}"
    os.write(1, f"RESULT framework=finetune {where} value={checksum} ok\n".encode())


def main():
    options = parse()
    cuda = torch.cuda.is_available()
    bf16 = cuda and torch.cuda.is_bf16_supported()
    arguments = TrainingArguments(
        output_dir=str(options.output or tempfile.mkdtemp()),
        use_cpu=not cuda,
        ddp_backend="nccl" if cuda else "gloo",
        deepspeed=None if options.deepspeed == "off" else options.deepspeed,
        bf16=bf16,
        per_device_train_batch_size=options.batch,
        gradient_accumulation_steps=options.accumulate,
        gradient_checkpointing=options.checkpointing,
        learning_rate=options.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, options.steps // 20),
        max_steps=options.steps,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    model, tokenizer = load(options.model, torch.bfloat16 if bf16 else torch.float32)
    data = blocks(tokenizer, options.data, options.block)
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Tell()])
    trainer.train()
    if options.check:
        check(trainer)
    if options.output is not None:
        trainer.save_model()
        if trainer.is_world_process_zero():
            tokenizer.save_pretrained(options.output)
    if dist.is_initialized():
        dist.barrier()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads can make the interpreter's own clean-up abort (torch 2.13)
