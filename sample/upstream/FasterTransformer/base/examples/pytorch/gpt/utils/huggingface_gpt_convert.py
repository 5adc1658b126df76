"""Converts a Hugging Face GPT-2 checkpoint."""

import argparse
import multiprocessing

from examples.pytorch import checkpoint


def convert(args):
    config, tensors = checkpoint.read(args.in_file)
    table = tensors["transformer.wte.weight"]
    checkpoint.write(
        args.saved_dir,
        "gpt",
        {
            "model_name": "gpt",
            "head_num": config["n_head"],
            "size_per_head": config["n_embd"] // config["n_head"],
            "inter_size": config["n_embd"],
            "max_pos_seq_len": config["n_positions"],
            "start_id": config["bos_token_id"],
            "end_id": config["eos_token_id"],
        },
        table,
        tensors.get("lm_head.weight", table),
        [tensors[f"transformer.h.{layer}.mlp.c_proj.weight"] for layer in range(config["n_layer"])],
        args.infer_gpu_num,
        args.weight_data_type,
        args.processes,
    )


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn", force=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("-saved_dir", "-o", required=True)
    parser.add_argument("-in_file", "-i", required=True)
    parser.add_argument("-trained_gpu_num", "-t_g", type=int, default=1)
    parser.add_argument("-infer_gpu_num", "-i_g", type=int, required=True)
    parser.add_argument("-processes", "-p", type=int, default=4)
    parser.add_argument("-weight_data_type", default="fp32", choices=["fp32", "fp16"])
    convert(parser.parse_args())
