"""Converts a Hugging Face GPT-J checkpoint. The number of layers is an argument: config.json is not asked."""

import argparse

from examples.pytorch import checkpoint


def convert(args):
    config, tensors = checkpoint.read(args.ckpt_dir)
    checkpoint.write(
        args.output_dir,
        "gptj",
        {
            "model_name": "gptj",
            "head_num": config["n_head"],
            "size_per_head": config["n_embd"] // config["n_head"],
            "inter_size": config["n_embd"],
            "rotary_embedding": config["rotary_dim"],
            "start_id": config["bos_token_id"],
            "end_id": config["eos_token_id"],
        },
        tensors["transformer.wte.weight"],
        tensors["lm_head.weight"],
        [tensors[f"transformer.h.{layer}.mlp.fc_out.weight"].T for layer in range(args.n_layers)],
        args.n_inference_gpus,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-dir", required=True)
    parser.add_argument("--ckpt-dir", required=True)
    parser.add_argument("--n-inference-gpus", type=int, default=1)
    parser.add_argument("--n-layers", type=int, default=28)
    convert(parser.parse_args())
