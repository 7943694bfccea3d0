"""Thresholds of the convolution rules.

Sizes are float32 values, products are multiplications, and both are in units of the processor or of XLA's CPU backend
(JAX 0.10) where there is one. Measured on two cores with AVX-512 and two with AVX2 (docs/performance.md).
"""

# Hardware, and XLA's code.
SIMD_LANES = 16  # values of an AVX-512 vector: XLA computes as many output channels at once
CHANNEL_QUANTUM = 4  # input channels that XLA reads at once
EIGEN_BLOCK = 1 << 18  # columns times input and output channels of a result that one thread computes
L2_FLOATS = 1 << 20
LLC_FLOATS = 1 << 22

# Code size. Compiling takes longer with each tap that is unrolled.
MAX_UNROLLED_TAPS = 128
OUTLINE_MIN_TAPS = 36  # computing so many taps twice costs more than their result's way to memory and back
GROUP_MAX_TAPS = 36  # of one loop over the channels of groups
MAX_UNROLLED_DEPTH = 16  # planes of a 3-D kernel

# Depthwise convolutions. A result reads as many values, and weights, of each channel as the kernel has taps.
DEPTHWISE_BLOCK = 2 * SIMD_LANES  # channels at a time
DEPTHWISE_BLOCK_MIN_CHANNELS, DEPTHWISE_BLOCK_MIN_TAPS = 256, 36
DEPTHWISE_FILTER_BLOCKS = ((SIMD_LANES, 1), (SIMD_LANES // 2, 25))  # channels of a block, and the taps that pay for it
DEPTHWISE_FILTER_MIN_ROW, DEPTHWISE_FILTER_MAX_TAPS_BY_ROW = 48, 25

# Groups of channels.
GROUPED_MIN_PRODUCTS = 1 << 20
GROUPED_MAX_SUM_LENGTH = 1 << 12  # products of one result: XLA is good at long sums
GROUP_MAX_CHANNELS = 4  # that are convolved channel by channel; with 8 a loop over the groups takes 0.4 to 0.8 of it
UNROLLED_MAX_GROUPS, UNROLLED_MIN_CHANNELS = 4, 2 * SIMD_LANES

# Narrow images, and input dilation.
NARROW_MAX_WIDTH, NARROW_MIN_KERNEL_RATIO = 4, 8
POLYPHASE_MAX_CHANNELS, POLYPHASE_MAX_TAPS = 64, 9  # with more of the first and no more of the second XLA sums well
POLYPHASE_MIN_OUTPUTS = 8

# Filter gradients: few results of windows about as large as the image. "Taps" are those of the filter.
FILTER_FEW_TAPS = 9
FILTER_MIN_WINDOW_PER_TAP = 100
FILTER_IM2COL_MAX_TAPS, FILTER_IM2COL_MAX_TAPS_OF_FEW_CHANNELS = 27, 128
FILTER_MIN_CHANNELS, FILTER_MAX_CHANNELS, FILTER_MAX_CHANNELS_OF_TWO_TAPS = 8, 64, 32
FILTER_TRANSPOSE_MIN_COLUMNS = 256
FILTER_MIN_WEIGHTS_PER_TAP, FILTER_MANY_WEIGHTS_PER_TAP = 256, 1 << 12
# Values of images and of the gradient that they are multiplied with.
FILTER_MIN_FLOATS, FILTER_MIN_FLOATS_OF_MANY_WEIGHTS = L2_FLOATS // 4, L2_FLOATS // 8
FILTER_MIN_FLOATS_OF_VOLUMES, FILTER_MAX_FLOATS_OF_VOLUMES = L2_FLOATS // 4, L2_FLOATS // 2
FILTER_MIN_FLOATS_OF_MANY_CHANNELS, FILTER_MIN_FLOATS_OF_FEW_CHANNELS = 3 * L2_FLOATS, 6 * L2_FLOATS
FILTER_IM2COL_ROWS = 2048  # windows at a time
FILTER_SWAP_MIN_WINDOW_RATIO = 4

# 3-D convolutions.
VOLUME_MIN_FLOATS, VOLUME_MIN_FLOATS_OF_FEW_OUTPUTS = 3 * L2_FLOATS, L2_FLOATS // 16
DEPTH_BLOCK_FLOATS = 3 * L2_FLOATS // 2  # of a block and its results before they are added up
DEPTH_BLOCK_MAX_OUTPUTS = 1 << 10  # of a block's convolution

# Few channels.
FOLD_MAX = 8
FOLD_MAX_OUTPUTS = ((CHANNEL_QUANTUM, 32), (8, 16), (16, 8))  # up to so many channels, outputs of all neighbors
FOLD_MIN_PRODUCTS = 1 << 15
CHANNEL_PADDING_MIN_PRODUCTS = 1 << 20
CHANNEL_PADDING_OUTPUTS = range(SIMD_LANES + 1, 2 * SIMD_LANES + 1)  # that are slow with one quantum of channels

# Winograd's minimal filtering.
WINOGRAD_MIN_TILES = 96  # with fewer, transforming the weights takes longer than it saves
WINOGRAD_MIN_CHANNELS, WINOGRAD_MIN_PRODUCTS = 128, 190 << 20
WINOGRAD_MIN_PRODUCTS_PER_VALUE = 80  # that is transformed
WINOGRAD_MIN_SAVING = 1.75  # direct products for each of the tiles': less where tiles reach over the edges
KERNEL_DILATION_MAX_PADDING = 1.3  # results of whole phases for each result

# Im2col of few windows.
IM2COL_MAX_TAPS, IM2COL_MAX_WINDOWS, IM2COL_MIN_CHANNELS = 9, 2560, 2 * SIMD_LANES
IM2COL_MIN_WEIGHTS = ((64, L2_FLOATS // 2), (512, L2_FLOATS))  # for so many windows at most

# Several images, or strips of one, in a row.
ROW_MIN_CHANNELS = SIMD_LANES
ROW_MIN_CHANNELS_UNPADDED, ROW_MIN_CHANNELS_OF_LARGE_RESULTS = 5, 3  # without padding, which is slow anyway
ROW_LARGE_RESULT = 6 * L2_FLOATS
ROW_MIN_WEIGHTS_PER_TAP = 384
ROW_MAX_BLOCKS = 64  # more threads are not waited for
ROW_FEW_IMAGES, ROW_STRIPS = 4, 4
ROW_MIN_PRODUCTS = 1 << 24
STRIP_LIMITS = ((100 << 20, 1.75), (300 << 20, 4))  # at least so many products, and blocks of a row less than

# Convolutions without padding: XLA writes all windows to memory.
UNPADDED_MIN_CHANNELS = 3
UNPADDED_MIN_FLOATS, UNPADDED_MIN_FLOATS_OF_FEW_CHANNELS = 3 * L2_FLOATS, L2_FLOATS // 4
