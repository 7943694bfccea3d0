"""Names in Keras files of objects that only compute.

Keras and tf_keras look up what a configuration names, and call it. A name that is not here needs ``config.trusted``,
so that a new release's layers are refused until somebody read them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import types
from typing import Any

LIBRARIES = ("keras", "tf_keras")
_NOTHING = types.ModuleType("nothing")  # in place of a library that is not installed

_NAMES = {
    "layers": """
    AbstractRNNCell Activation ActivityRegularization AdaptiveAveragePooling1D AdaptiveAveragePooling2D
    AdaptiveAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D Add AddLoss AddMetric
    AdditiveAttention AlphaDropout Attention AugMix AutoContrast Average AveragePooling1D AveragePooling2D
    AveragePooling3D AvgPool1D AvgPool2D AvgPool3D BaseRandomLayer BatchNormalization BatchNormalizationBase
    BatchNormalizationV1 BatchNormalizationV2 Bidirectional CategoryEncoding CenterCrop Concatenate
    ContrastLimitedAdaptiveHistogramEqualization Conv1D Conv1DTranspose Conv2D Conv2DTranspose Conv3D
    Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D Convolution1D Convolution1DTranspose Convolution2D
    Convolution2DTranspose Convolution3D Convolution3DTranspose Cropping1D Cropping2D Cropping3D CuDNNGRU CuDNNLSTM
    CutMix Dense DenseFeatures DepthwiseConv1D DepthwiseConv2D DeviceWrapper Discretization Dot Dropout
    DropoutWrapper ELU EinsumDense Embedding Equalization Flatten GRU GRUCell GRUCellV1 GRUCellV2 GRUV1 GRUV2
    GaussianDropout GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D
    GlobalAvgPool1D GlobalAvgPool2D GlobalAvgPool3D GlobalMaxPool1D GlobalMaxPool2D GlobalMaxPool3D
    GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D GroupNormalization GroupQueryAttention HashedCrossing
    Hashing Identity Input InputLayer InputSpec IntegerLookup LSTM LSTMCell LSTMCellV1 LSTMCellV2 LSTMV1 LSTMV2
    Layer LayerNormalization LeakyReLU LocallyConnected1D LocallyConnected2D Masking MaxNumBoundingBoxes MaxPool1D
    MaxPool2D MaxPool3D MaxPooling1D MaxPooling2D MaxPooling3D Maximum MelSpectrogram Minimum MixUp
    MultiHeadAttention Multiply Normalization PReLU Permute Pipeline PreprocessingLayer RMSNormalization RNN RandAugment
    RandomBrightness RandomColorDegeneration RandomColorJitter RandomContrast RandomCrop RandomElasticTransform
    RandomErasing RandomFlip RandomGaussianBlur RandomGrayscale RandomHeight RandomHue RandomInvert
    RandomPerspective RandomPosterization RandomRotation RandomSaturation RandomSharpness RandomShear
    RandomTranslation RandomWidth RandomZoom ReLU RepeatVector Rescaling ResidualWrapper Reshape Resizing
    ReversibleEmbedding STFTSpectrogram SeparableConv1D SeparableConv2D SeparableConvolution1D
    SeparableConvolution2D SequenceFeatures SimpleRNN SimpleRNNCell Softmax Solarization SpatialDropout1D
    SpatialDropout2D SpatialDropout3D SpectralNormalization StackedRNNCells StringLookup Subtract
    SyncBatchNormalization TextVectorization ThresholdedReLU TimeDistributed UnitNormalization UpSampling1D
    UpSampling2D UpSampling3D Wrapper ZeroPadding1D ZeroPadding2D ZeroPadding3D add average concatenate dot maximum
    minimum multiply subtract
    """,
    "other classes": """
    Functional LinearModel Model Sequential WideDeepModel LossFunctionWrapper CompileLoss CompileMetrics Cross
    Feature FeatureSpace SeedGenerator BucketizedColumn CrossedColumn EmbeddingColumn HashedCategoricalColumn
    IdentityCategoricalColumn IndicatorColumn NumericColumn SequenceCategoricalColumn SequenceNumericColumn
    VocabularyListCategoricalColumn WeightedCategoricalColumn __bytes__ __ellipsis__ __keras_tensor__ __numpy__
    __slice__ __tensor__ __tuple__ CompositeTensor TensorShape TypeSpec
    """,
    "attributes": """
    bounding_shape dense_shape flat_values indices merge_dims nested_row_splits nested_value_rowids nrows
    row_lengths row_limits row_splits row_starts to_sparse to_tensor value_rowids values with_flat_values
    with_row_splits_dtype with_values
    """,
    "ragged constructors": """
    from_nested_row_lengths from_nested_row_splits from_nested_value_rowids from_row_lengths from_row_limits
    from_row_splits from_row_starts from_sparse from_tensor from_uniform_row_length from_value_rowids
    """,
    "aliases": """
    accuracy acc bce ce cosine crossentropy kld kullbackleiblerdivergence logcosh mae mape mse msle normal one
    uniform zero
    """,
}
LAYERS = frozenset(_NAMES["layers"].split())
"""Layers, and the functions that merge, of keras.layers, tf_keras.layers and tf_keras' list for old files."""

OTHER_CLASSES = frozenset(_NAMES["other classes"].split())
"""Models, parts of layers, columns of DenseFeatures, and values in JSON."""

TYPE_SPECS = frozenset({"IndexedSlicesSpec", "RaggedTensorSpec", "SparseTensorSpec", "TensorSpec"})

CODE = frozenset({"FlaxLayer", "JaxLayer", "Lambda", "TFSMLayer", "TorchModuleWrapper", "__lambda__"})
"""Classes whose configuration is code: a marshalled function, a torch pickle, or another SavedModel."""

FUNCTION_LAYERS = frozenset({"SlicingOpLambda", "TFOpLambda"})
"""Layers of tf_keras that call the function of TensorFlow's API that their configuration names."""

METHOD_LAYERS = frozenset({"ClassMethod", "InstanceMethod", "InstanceProperty"})
"""Layers of tf_keras that read an attribute of a tensor, or call a method, by its name."""

_ATTRIBUTES = frozenset(_NAMES["attributes"].split())
_RAGGED_CONSTRUCTORS = frozenset(_NAMES["ragged constructors"].split())

# Namespaces of Keras all of whose members compute; of them the classes and the functions are allowed.
_COMPUTING = (
    "activations",
    "constraints",
    "dtype_policies",
    "initializers",
    "losses",
    "metrics",
    "mixed_precision",
    "ops",
    "ops.image",
    "ops.linalg",
    "ops.nn",
    "ops.numpy",
    "optimizers",
    "optimizers.experimental",
    "optimizers.legacy",
    "optimizers.schedules",
    "quantizers",
    "regularizers",
)
_NO_OBJECTS = frozenset(
    {"deserialize", "get", "serialize", "global_policy", "set_global_policy", "set_dtype_policy", "dtype_policy"}
)
# The last part of a module that such functions are in.
_MODULES = frozenset(name.split(".")[-1] for name in _COMPUTING) | {"builtins", "core", "math"}
# Names that only the function `get` of a namespace knows.
_ALIASES = frozenset(_NAMES["aliases"].split())

# Namespaces of TensorFlow all of whose functions compute.
_TENSORFLOW_NAMESPACES = re.compile(
    r"(__operators__|audio|bitwise|image|linalg|math|math\.special|quantization|ragged|sets|signal|sparse|strings)"
    r"\.[a-z]\w*"
)
_TENSORFLOW = {
    "": """
    abs accumulate_n acos acosh add add_n angle approx_top_k arg_max arg_min argmax argmin argsort as_string asin asinh
    atan atan2 atanh batch_gather batch_to_space batch_to_space_nd betainc bincount bitcast boolean_mask
    broadcast_dynamic_shape broadcast_to cast ceil check_numerics cholesky cholesky_solve
    clip_by_average_norm clip_by_global_norm clip_by_norm clip_by_value complex concat confusion_matrix conj constant
    conv convert_to_tensor cos cosh count_nonzero cross cumprod cumsum depth_to_space dequantize diag diag_part digamma
    div div_no_nan divide dynamic_partition dynamic_stitch edit_distance eig eigvals einsum ensure_shape equal erf erfc
    exp expand_dims expm1 extract_image_patches extract_volume_patches eye fft fft2d fft3d fftnd fill fingerprint floor
    floor_div floordiv floormod gather gather_nd global_norm greater greater_equal guarantee_const histogram_fixed_width
    histogram_fixed_width_bins identity identity_n ifft ifft2d ifft3d ifftnd igamma igammac imag invert_permutation
    irfftnd is_finite is_inf is_nan is_non_decreasing is_strictly_increasing lbeta less less_equal lgamma lin_space
    linspace log log1p log_sigmoid logical_and logical_not logical_or logical_xor matmul matrix_band_part
    matrix_determinant matrix_diag matrix_diag_part matrix_inverse matrix_set_diag matrix_solve matrix_solve_ls
    matrix_square_root matrix_transpose matrix_triangular_solve maximum meshgrid minimum mod multinomial multiply
    negative norm not_equal one_hot ones ones_like pad parallel_stack polygamma pow qr quantize quantize_v2 random_crop
    random_gamma random_normal random_poisson random_shuffle random_uniform range rank real realdiv reciprocal
    reduce_all reduce_any reduce_join reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_sum
    regex_replace repeat required_space_to_batch_paddings reshape reverse reverse_sequence reverse_v2 rfftnd rint roll
    round rsqrt saturate_cast scalar_mul scatter_nd searchsorted segment_max segment_mean segment_min segment_prod
    segment_sum self_adjoint_eig self_adjoint_eigvals sequence_mask setdiff1d shape shape_n sigmoid sign sin sinh size
    slice sort space_to_batch space_to_batch_nd space_to_depth sparse_add sparse_concat sparse_fill_empty_rows
    sparse_mask sparse_matmul sparse_maximum sparse_minimum sparse_reduce_max sparse_reduce_sum sparse_reorder
    sparse_reset_shape sparse_reshape sparse_retain sparse_segment_mean sparse_segment_sqrt_n sparse_segment_sum
    sparse_slice sparse_softmax sparse_split sparse_tensor_dense_matmul sparse_tensor_to_dense sparse_to_dense
    sparse_to_indicator sparse_transpose split sqrt square squared_difference squeeze stack stop_gradient strided_slice
    string_join string_split string_strip string_to_hash_bucket string_to_hash_bucket_fast string_to_hash_bucket_strong
    string_to_number substr subtract svd tan tanh tensor_scatter_add tensor_scatter_nd_add tensor_scatter_nd_max
    tensor_scatter_nd_min tensor_scatter_nd_sub tensor_scatter_nd_update tensor_scatter_sub tensor_scatter_update
    tensordot tile to_bfloat16 to_complex128 to_complex64 to_double to_float to_int32 to_int64 trace transpose truediv
    truncated_normal truncatediv truncatemod unique unique_with_counts unravel_index unsorted_segment_max
    unsorted_segment_mean unsorted_segment_min unsorted_segment_prod unsorted_segment_sqrt_n unsorted_segment_sum
    unstack where where_v2 zeros zeros_like zeta
    """,
    "debugging.": """
    Assert assert_all_finite assert_equal assert_greater assert_greater_equal assert_integer assert_less
    assert_less_equal assert_near assert_negative assert_non_negative assert_non_positive assert_none_equal
    assert_positive assert_rank assert_rank_at_least assert_rank_in assert_scalar assert_shapes assert_type
    check_numerics
    """,
    "dtypes.": "as_string cast complex saturate_cast",
    "io.": """
    decode_and_crop_jpeg decode_base64 decode_bmp decode_compressed decode_csv decode_gif decode_image decode_jpeg
    decode_json_example decode_png decode_raw decode_webp encode_base64 encode_jpeg encode_png extract_jpeg_shape
    is_jpeg parse_tensor serialize_tensor
    """,
    "nn.": """
    approx_max_k approx_min_k atrous_conv2d atrous_conv2d_transpose avg_pool avg_pool1d avg_pool2d avg_pool3d
    avg_pool_v2 batch_norm_with_global_normalization batch_normalization bias_add collapse_repeated
    compute_accidental_hits compute_average_loss conv1d conv1d_transpose conv2d conv2d_backprop_filter
    conv2d_backprop_input conv2d_transpose conv3d conv3d_transpose conv_transpose convolution crelu
    ctc_beam_search_decoder ctc_beam_search_decoder_v2 ctc_greedy_decoder ctc_loss ctc_loss_v2 ctc_unique_labels
    depth_to_space depthwise_conv2d depthwise_conv2d_backprop_filter depthwise_conv2d_backprop_input
    depthwise_conv2d_native dilation2d dropout elu embedding_lookup embedding_lookup_sparse erosion2d
    experimental.stateless_dropout fractional_avg_pool fractional_max_pool fused_batch_norm gelu in_top_k
    isotonic_regression l2_loss l2_normalize leaky_relu local_response_normalization log_poisson_loss log_softmax lrn
    max_pool max_pool1d max_pool2d max_pool3d max_pool_v2 max_pool_with_argmax moments normalize_moments pool
    quantized_avg_pool quantized_conv2d quantized_max_pool quantized_relu_x relu relu6 relu_layer
    safe_embedding_lookup_sparse scale_regularization_loss selu separable_conv2d sigmoid
    sigmoid_cross_entropy_with_logits silu softmax softmax_cross_entropy_with_logits
    softmax_cross_entropy_with_logits_v2 softplus softsign space_to_batch space_to_depth
    sparse_softmax_cross_entropy_with_logits sufficient_statistics swish tanh top_k
    weighted_cross_entropy_with_logits weighted_moments with_space_to_batch xw_plus_b zero_fraction
    """,
    "random.": """
    categorical experimental.index_shuffle experimental.stateless_fold_in experimental.stateless_shuffle
    experimental.stateless_split fold_in gamma multinomial normal poisson shuffle split stateless_binomial
    stateless_categorical stateless_gamma stateless_multinomial stateless_normal
    stateless_parameterized_truncated_normal stateless_poisson stateless_truncated_normal stateless_uniform
    truncated_normal uniform
    """,
    "keras.backend.": """
    abs all any arange argmax argmin batch_dot batch_flatten batch_normalization bias_add binary_crossentropy
    binary_focal_crossentropy cast cast_to_floatx categorical_crossentropy categorical_focal_crossentropy clip
    concatenate constant conv1d conv2d conv2d_transpose conv3d cos ctc_batch_cost ctc_decode ctc_label_dense_to_sparse
    cumprod cumsum depthwise_conv2d dot dropout elu equal exp expand_dims eye flatten gather greater greater_equal
    hard_sigmoid in_top_k l2_normalize less less_equal local_conv1d local_conv2d log max maximum mean min minimum
    not_equal one_hot ones ones_like permute_dimensions pool2d pool3d pow prod random_bernoulli random_binomial
    random_normal random_uniform relu repeat repeat_elements reshape resize_images resize_volumes reverse round
    separable_conv2d shape sigmoid sign sin softmax softplus softsign sparse_categorical_crossentropy
    spatial_2d_padding spatial_3d_padding sqrt square squeeze stack std stop_gradient sum switch tanh temporal_padding
    tile to_dense transpose truncated_normal var zeros zeros_like
    """,
}
_TENSORFLOW_NAMES = frozenset(prefix + name for prefix, names in _TENSORFLOW.items() for name in names.split())


def computes_in_tensorflow(name: Any) -> bool:
    """Return whether a name that TFOpLambda looks up is a computing function."""
    if not isinstance(name, str):
        return False
    name = name.removeprefix("compat.v1.")
    if name in _TENSORFLOW_NAMES or _TENSORFLOW_NAMESPACES.fullmatch(name):
        return True
    package, _, function = name.rpartition(".")
    return package in ("keras.activations", "keras.losses", "keras.metrics") and is_function(function)


def is_tensor_method(config: dict[str, Any]) -> bool:
    """Return whether a method layer reads or converts a ragged or sparse tensor."""
    if "cls_symbol" in config or "method_name" in config:
        return config.get("cls_symbol") == "RaggedTensor" and config.get("method_name") in _RAGGED_CONSTRUCTORS
    return config.get("attr_name") in _ATTRIBUTES


def is_class(name: str, module: str | None) -> bool:
    """Return whether a class of Keras, or a marker of values, only computes."""
    return name in LAYERS or name in OTHER_CLASSES or _is_operation(name, module) or _is_public(name, True)


def is_function(name: Any, module: str | None = None) -> bool:
    """Return whether a function of Keras only computes.

    Args:
      module: its module; any with such functions if left out.
    """
    if module is not None and module.split(".")[-1] not in _MODULES:
        return False
    return isinstance(name, str) and _is_public(name, False)


def is_identifier(name: str) -> bool:
    """Return whether a string names an activation, initializer or the like."""
    plain = _plain(name)
    return name in LAYERS or plain in _ALIASES or any(plain in _identifiers(library) for library in LIBRARIES)


def is_known_layer(name: str) -> bool:
    """Return whether Keras or tf_keras has a public layer of that name."""
    return any(hasattr(getattr(_library(library), "layers", None), name) for library in LIBRARIES)


def _is_operation(name: str, module: str | None) -> bool:
    """Return whether a class is an operation of Keras 3, as nodes are."""
    operation = getattr(_library("keras"), "Operation", None)
    if module is None or operation is None or not re.fullmatch(r"keras\.src\.ops\.\w+", module):
        return False
    found = getattr(_library(module), name, None)
    return inspect.isclass(found) and issubclass(found, operation) and found.__module__.startswith("keras.src.ops.")


def _plain(name: str) -> str:
    return name.removesuffix("V2").replace("_", "").lower()


@functools.cache
def _identifiers(library: str) -> frozenset[str]:
    return frozenset(_plain(name) for name in _public(library, True) | _public(library, False) | LAYERS)


def _is_public(name: str, classes: bool) -> bool:
    name = name.removesuffix("V2")  # of tf_keras' initializers
    return any(name in _public(library, classes) for library in LIBRARIES)  # tf_keras is imported if it has to be


@functools.cache
def _public(library: str, classes: bool) -> frozenset[str]:
    """Return the public classes, or functions, of namespaces that only compute."""
    return frozenset(
        name
        for path in _COMPUTING
        for name, found in vars(functools.reduce(_attribute, path.split("."), _library(library))).items()
        if callable(found) and inspect.isclass(found) == classes and name not in _NO_OBJECTS and name[0] != "_"
    )


def _attribute(module: Any, name: str) -> Any:
    return getattr(module, name, _NOTHING)


@functools.cache
def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return _NOTHING
