"""Converts a Hugging Face T5 checkpoint."""

import argparse

from examples.pytorch import checkpoint


def convert(args):
    config, tensors = checkpoint.read(args.in_file)
    layers = range(config["num_layers"])
    table = tensors["shared.weight"]
    checkpoint.write(
        args.saved_dir,
        "t5",
        {
            "model_name": "t5",
            "head_num": config["num_heads"],
            "size_per_head": config["d_model"] // config["num_heads"],
            "inter_size": config["d_model"],
            "start_id": config["decoder_start_token_id"],
            "end_id": config["eos_token_id"],
        },
        table,
        tensors.get("lm_head.weight", table),
        [tensors[f"decoder.block.{layer}.layer.2.DenseReluDense.wo.weight"].T for layer in layers],
        args.inference_tensor_para_size,
        args.weight_data_type,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-saved_dir", "-o", required=True)
    parser.add_argument("-in_file", "-i", required=True)
    parser.add_argument("-inference_tensor_para_size", "-i_g", type=int, required=True)
    parser.add_argument("-weight_data_type", default="fp32", choices=["fp32", "fp16"])
    convert(parser.parse_args())
