"""The template of BERT, as upstream's of fastertransformer_backend v1.4 (all_models/bert); other values."""

TEMPLATE = """\
name: "fastertransformer" backend: "fastertransformer" default_model_filename: "bert" max_batch_size: 64
input [
  { name: "input_hidden_state" dims: [ -1, -1 ] },
  { name: "sequence_lengths" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } }
]
output [ { name: "output_hidden_state" dims: [ -1, -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "model_type" value: { string_value: "bert" } }
parameters { key: "is_remove_padding" value: { string_value: "1" } }
"""
