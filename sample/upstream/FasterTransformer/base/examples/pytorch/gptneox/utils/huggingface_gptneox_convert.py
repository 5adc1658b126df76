"""Converts any Hugging Face GPT-NeoX checkpoint."""

import argparse
import multiprocessing

from examples.pytorch import checkpoint


def convert(args):
    config, tensors = checkpoint.read(args.in_file)
    heads = config["num_attention_heads"]
    layers = range(config["num_hidden_layers"])
    checkpoint.write(
        args.saved_dir,
        "gptneox",
        {
            "model_name": args.model_name,
            "head_num": heads,
            "size_per_head": config["hidden_size"] // heads,
            "inter_size": config["hidden_size"],
            "use_gptj_residual": int(config["use_parallel_residual"]),
            "start_id": config["bos_token_id"],
            "end_id": config["eos_token_id"],
        },
        tensors["gpt_neox.embed_in.weight"],
        tensors["embed_out.weight"],
        [tensors[f"gpt_neox.layers.{layer}.mlp.dense_4h_to_h.weight"].T for layer in layers],
        args.infer_gpu_num,
        args.weight_data_type,
        args.processes,
    )


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn", force=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("-saved_dir", "-o", required=True)
    parser.add_argument("-in_file", "-i", required=True)
    parser.add_argument("-infer_gpu_num", "-i_g", type=int, required=True)
    parser.add_argument("-processes", "-p", type=int, default=4)
    parser.add_argument("-weight_data_type", default="fp32", choices=["fp32", "fp16"])
    parser.add_argument("-model_name", "-m_n", required=True)
    convert(parser.parse_args())
