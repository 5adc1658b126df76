"""The template of T5's encoder, as that of fastertransformer_backend v1.4 (all_models); other values."""

TEMPLATE = """\
name: "fastertransformer" backend: "fastertransformer" default_model_filename: "encoder" max_batch_size: 64
input [
  { name: "input_ids" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "sequence_length" data_type: TYPE_UINT32 dims: [ 1 ] reshape: { shape: [ ] } },
  { name: "is_return_attentions" data_type: TYPE_BOOL dims: [ 1 ] reshape: { shape: [ ] } optional: true },
  { name: "ia3_tasks" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } optional: true }
]
output [
  { name: "output_hidden_state" data_type: TYPE_FP32 dims: [ -1, -1 ] },
  { name: "output_attentions" data_type: TYPE_FP32 dims: [ -1, -1, -1, -1 ] }
]
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "tensor_para_size" value: { string_value: "3" } }
parameters { key: "data_type" value: { string_value: "fp32" } }
parameters { key: "model_type" value: { string_value: "T5-Encoder" } }
parameters { key: "model_checkpoint_path" value: { string_value: "/weights/1-gpu" } }
"""
