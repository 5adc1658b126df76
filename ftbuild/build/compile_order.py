"""Sources with the longest compile times, which start first: a build lasts as long as its last unit.

Compile order does not affect the output, so it is not part of the input key.
"""

from __future__ import annotations

from pathlib import PurePath

# File names without suffixes, heaviest first, down to four CPU seconds: the output of
# `python -m benchmarks.tools.compile_order` for the real sources, releases 22.03 to 22.12, each for one SM of
# 60, 80, 86, 89 and 90.
SOURCES = (
    "moe_gemm_kernels_bf16_uint8 moe_gemm_kernels_fp16_uint8 fpA_intB_gemm_bf16_uint8 "
    "moe_gemm_kernels_bf16_uint4 moe_gemm_kernels_fp16_uint4 fpA_intB_gemm_bf16_uint4 "
    "fpA_intB_gemm_fp16_int4 fpA_intB_gemm_fp16_int8 moe_gemm_kernels_fp32_fp32 "
    "decoder_masked_multihead_attention moe_gemm_kernels_fp16_fp16 moe_gemm_kernels_bf16_bf16 "
    "online_softmax_beamsearch_float_64 online_softmax_beamsearch_kernels th_utils "
    "beam_search_topk_kernels sampling_topp_kernels online_softmax_beamsearch_float_8 "
    "decoder_masked_multihead_attention_160 decoder_masked_multihead_attention_224 "
    "decoder_masked_multihead_attention_144 online_softmax_beamsearch_half_64 "
    "decoder_masked_multihead_attention_192 online_softmax_beamsearch_float_32 "
    "online_softmax_beamsearch_half_32 layernorm_kernels ParallelGptOp "
    "decoder_masked_multihead_attention_256 T5DecodingOp BertOp T5EncoderOp ParallelGptContextDecoderOp "
    "ParallelGptDecoderOp BartEncoderOp DynamicDecodeOp T5DecoderOp DecodingOp WeightOnlyQuantOps "
    "decoder_masked_multihead_attention_96 WeightTransposeCalibrateQuantizeOp GptOp BertINT8Op "
    "WeightQuantizeOp BartDecoderOp decoder_masked_multihead_attention_80 "
    "decoder_masked_multihead_attention_128 BartDecodingOp decoder_masked_multihead_attention_64 "
    "decoder_masked_multihead_attention_48 moe_kernels online_softmax_beamsearch_float_16 "
    "decoder_masked_multihead_attention_32 online_softmax_beamsearch_half_16 unfused_attention_kernels "
    "libfastertransformer DecoderCrossAttentionLayer ParallelGpt online_softmax_beamsearch_half_8 "
    "int8_gemm_fp16 qkvToContext int8_gemm_int32 int8_gemm_bf16 int8_gemm_fp32 memory_utils "
    "layernorm_int8_kernels decoding_kernels TopPSamplingLayer sampling_topk_kernels BertTritonModel "
    "BeamSearchLayer normalize_kernels FusedAttentionLayer gpt_kernels logprob_kernels "
    "longformer_kernels softmax_int8_kernels ParallelGptContextDecoder GptJ stop_criteria_kernels "
    "activation_kernels fpA_intB_gemm_dummy_stubs TopKSamplingLayer FusedAttentionLayerINT8 "
    "WindowAttentionINT8 gen_relative_pos_bias BartDecoding T5Decoding dequantize_kernels "
    "image_merge_kernels beam_search_penalty_kernels unfused_attention_int8_kernels "
    "OnlineBeamSearchLayer GptNeoX Bert T5Encoder T5Decoder GptJContextDecoder BaseBeamSearchLayer "
    "TopKTopPSamplingLayer ParallelGptTritonModel ParallelGptTritonModelInstance T5TritonModel "
    "matrix_vector_multiplication BartEncoder reverse_roll_kernels calibrate_quantize_weight_kernels "
    "GptNeoXContextDecoder transform_mask_kernels Decoding T5TritonModelInstance ParallelGptDecoder "
    "transpose_int8_kernels T5EncoderTritonModel custom_ar_kernels disentangled_attention_kernels "
    "BertINT8 image_shift_partition_kernels BartDecoder ParallelGptDecoderLayerWeight GptJTritonModel "
    "bert_preprocess_kernels FfnLayer DynamicDecodeLayer ban_bad_words add_residual_kernels "
    "GptJTritonModelInstance BaseSamplingLayer GptContextAttentionLayer Tensor sampling_penalty_kernels "
    "vit_kernels "
)


def source(output: str) -> str:
    """Return the name of an object's source in SOURCES."""
    return PurePath(output).name.partition(".")[0]
