"""What each operation does to a value that passes through it. Names are without namespace, overload and trailing underscore."""


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The value stays what it is: moved, cast, cut or copied.
IDENTITY = _set("""
    view _unsafe_view reshape _reshape_alias _unsafe_masked_index alias detach clone contiguous copy _to_copy expand permute transpose t
    unsqueeze squeeze roll flip constant_pad_nd reread lift_fresh lift_fresh_copy unflatten masked_fill clamp clamp_min clamp_max nan_to_num
    native_dropout dropout alpha_dropout feature_dropout as_strided pixel_shuffle pixel_unshuffle channel_shuffle movedim swapaxes
    repeat tile view_copy expand_copy _conj resolve_conj pad reflection_pad1d reflection_pad2d replication_pad2d rot90 to _efficientzerotensor
    fake_quantize_per_tensor_affine quantize_per_tensor dequantize tril triu
""")
PARTS = _set("""
    slice select split split_with_sizes unsafe_split chunk unbind narrow index index_select gather take_along_dim diagonal unfold
    masked_select take im2col
""")
SPLITS = _set("split split_with_sizes unsafe_split chunk unbind")           # several parts, each a value of its own
MOVES = _set("roll flip constant_pad_nd pad rot90 index gather index_select")
DROPS = _set("native_dropout dropout alpha_dropout feature_dropout")

# The value passes, changed in a way that still counts as the same stream.
POOLS = _set("""
    mean sum amax max avg_pool1d avg_pool2d avg_pool3d max_pool2d_with_indices max_pool2d max_pool1d max_pool3d_with_indices _adaptive_avg_pool2d
    _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_max_pool2d adaptive_avg_pool2d upsample_nearest2d upsample_bilinear2d upsample_bicubic2d
    upsample_nearest1d upsample_linear1d _upsample_bilinear2d_aa _upsample_bicubic2d_aa upsample_nearest3d upsample_trilinear3d
    logsumexp cumsum cumprod
""")
ACTS = _set("""
    relu gelu silu tanh sigmoid leaky_relu elu celu selu mish softplus hardswish hardsigmoid hardtanh relu6 exp log abs square sqrt rsqrt pow
    reciprocal softmax _softmax _safe_softmax log_softmax _log_softmax erf sin cos threshold prelu _prelu_kernel rrelu logit log1p expm1 glu sign
    sgn acos asin atan acosh asinh atanh sinh cosh tan softshrink hardshrink tanhshrink log_sigmoid log_sigmoid_forward rrelu_with_noise
""")
GATES = _set("sigmoid tanh hardsigmoid softmax _softmax _safe_softmax hardtanh clamp sparsemax topk")
SIGNED = _set("tanh hardtanh")             # bounded, and yet a value: beside a sigmoid it is what is gated
SOFTMAXES = _set("softmax _softmax _safe_softmax")
STATISTICS = _set("mean sum var std norm linalg_vector_norm var_mean std_mean amax")
SQUARED = _set("var std norm linalg_vector_norm var_mean std_mean")

NORMS = {
    "native_layer_norm": "LayerNorm", "layer_norm": "LayerNorm", "_fused_rms_norm": "RMSNorm", "rms_norm": "RMSNorm",
    "native_group_norm": "GroupNorm", "group_norm": "GroupNorm", "native_batch_norm": "BatchNorm", "batch_norm": "BatchNorm",
    "_native_batch_norm_legit": "BatchNorm", "_native_batch_norm_legit_no_training": "BatchNorm", "_batch_norm_with_update": "BatchNorm",
    "_batch_norm_no_update": "BatchNorm", "cudnn_batch_norm": "BatchNorm", "miopen_batch_norm": "BatchNorm", "_batch_norm_impl_index": "BatchNorm",
}

# Multiplied by a stored matrix, or mixed over tokens.
MATMULS = _set("mm bmm addmm baddbmm addbmm addmv mv dot matmul linear _grouped_mm _scaled_mm _weight_int8pack_mm _weight_int4pack_mm addr")
CONVOLUTIONS = _set("""
    convolution _convolution mkldnn_convolution conv1d conv2d
    conv3d conv_transpose2d _slow_conv2d_forward conv_depthwise3d _conv_depthwise2d
""")
ATTENTIONS = _set("""
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention
    _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable
    _scaled_dot_product_attention_math_for_mps scaled_dot_product_attention flex_attention _flash_attention_forward _efficient_attention_forward
    _native_multi_head_attention _transformer_encoder_layer_fwd
""")
RECURRENCES = _set("""
    lstm gru rnn_tanh rnn_relu mkldnn_rnn_layer
    lstm_cell gru_cell _thnn_fused_lstm_cell _thnn_fused_gru_cell _cudnn_rnn quantized_lstm
""")
LOOKUPS = _set("embedding embedding_bag _embedding_bag")
MIXERS = _set("_fft_r2c _fft_c2c _fft_c2r fft_fft fft_fft2 _trilinear bilinear")

# Shape in, fresh numbers out: what they return carries no signal.
FRESH = _set("""
    empty_like zeros_like ones_like full_like rand_like randn_like randint_like new_empty new_zeros new_ones new_full new_empty_strided empty
    zeros ones full arange rand randn bernoulli eye scalar_tensor empty_strided uniform normal randint randperm linspace zero fill
    exponential
""")
RANDOM = _set("bernoulli rand rand_like randn randn_like uniform normal randint randint_like exponential native_dropout")

ADDS = _set("add sub rsub")
SCATTERS = _set("index_add scatter_add index_put scatter index_copy scatter_reduce _unsafe_index_put slice_scatter select_scatter masked_scatter")
