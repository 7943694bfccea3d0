"""Thresholds of CPU rules, plan rewrites and scan optimizations.

None of them changes values.
Sizes are float32 values, products are multiplications, and both are in units of the processor or of XLA's CPU backend
(JAX 0.10) where there is one. Measured on two cores with AVX-512, those of convolutions on two with AVX2 as well
(benchmarks/pages/performance.md). Modules read them when they decide (``cost_model.NAME``), so that tests and
experiments can set them.
"""

# Hardware, and XLA's code.
SIMD_LANES = 16  # values of an AVX-512 vector: XLA computes as many output channels at once
L2_FLOATS = 1 << 20
LLC_FLOATS = 1 << 22

# Code size. Compiling takes longer with each tap that is unrolled.
MAX_UNROLLED_TAPS = 128
MATERIALIZE_MIN_TAPS = 36  # computing so many taps twice costs more than their result's way to memory and back
GROUP_MAX_TAPS = 36  # of one loop over the channels of groups
MAX_UNROLLED_DEPTH = 16  # planes of a 3-D kernel

# Depthwise convolutions. A result reads as many values, and weights, of each channel as the kernel has taps.
DEPTHWISE_FILTER_MIN_ROW, DEPTHWISE_FILTER_MAX_TAPS_BY_ROW = 48, 25

# Groups of channels.
GROUPED_MIN_PRODUCTS = 1 << 20
GROUPED_MAX_SUM_LENGTH = 1 << 12  # products of one result: XLA is good at long sums
GROUP_MAX_CHANNELS = 4  # that are convolved channel by channel; with 8 a loop over the groups takes 0.4 to 0.8 of it

# Input dilation.
POLYPHASE_MAX_CHANNELS, POLYPHASE_MAX_TAPS = 64, 9  # with more of the first and no more of the second XLA sums well
POLYPHASE_MIN_OUTPUTS = 8

# Filter gradients: few results of windows about as large as the image. "Taps" are those of the filter.
FILTER_FEW_TAPS = 9
FILTER_MIN_WINDOW_PER_TAP = 100
FILTER_IM2COL_MAX_TAPS, FILTER_IM2COL_MAX_TAPS_OF_FEW_CHANNELS = 27, 128
FILTER_MIN_CHANNELS, FILTER_MAX_CHANNELS = 8, 64
FILTER_XLA_CHANNELS = range(8, 32)  # of which XLA sums images as fast
FILTER_MIN_WEIGHTS_PER_TAP, FILTER_MANY_WEIGHTS_PER_TAP = 256, 1 << 12
# Values of images and of the gradient that they are multiplied with.
FILTER_MIN_FLOATS, FILTER_MIN_FLOATS_OF_MANY_WEIGHTS = L2_FLOATS // 2, L2_FLOATS // 8
FILTER_MIN_FLOATS_OF_LINES = L2_FLOATS // 4  # of taps
FILTER_MIN_FLOATS_OF_VOLUMES, FILTER_MAX_FLOATS_OF_VOLUMES = L2_FLOATS // 4, L2_FLOATS // 2
FILTER_MIN_FLOATS_OF_MANY_CHANNELS, FILTER_MIN_FLOATS_OF_FEW_CHANNELS = 9 * L2_FLOATS // 2, 3 * L2_FLOATS // 4
FILTER_IM2COL_ROWS, FILTER_IM2COL_FLOATS = 2048, L2_FLOATS  # windows at a time, and their values
FILTER_IM2COL_FEW_VALUES, FILTER_IM2COL_ROWS_OF_FEW_VALUES = 128, 1024  # values of a window, and then windows at a time
FILTER_SWAP_MIN_WINDOW_RATIO = 4

# Few channels.
FOLD_MAX, FOLD_MIN_PRODUCTS = 8, 1 << 15
FOLD_OUTPUTS = ((4, 32), (8, 16), (16, 8))  # up to so many channels, outputs of all neighbors

# Im2col of few windows.
IM2COL_MAX_TAPS, IM2COL_MAX_WINDOWS, IM2COL_MIN_CHANNELS = 9, 2560, 2 * SIMD_LANES
IM2COL_MIN_WEIGHTS, IM2COL_FEW_WINDOWS = 2 * L2_FLOATS, 64  # so many weights, for so many windows at most

# Pooling, reductions and cumulative sums.
POOL_MAX_UNROLLED_TAPS = 64  # of a window
# XLA compiles some 50 ms for slices of a pooling. 100 calls save as much where windows overlap, of so many values.
POOL_MIN_OVERLAP, POOL_MIN_VALUES = 4, 1 << 20
ARG_MIN_LAST_AXIS = 32  # fewer values XLA compares as fast
CUMULATIVE_MIN_ROW = 16  # values of a row, for which a step of a loop pays
CUMULATIVE_MAX_UNROLLED = 16  # rows that need no loop
CUMULATIVE_MIN_TRANSPOSED = 4096  # values of a last axis from which on it is worth transposing
CUMULATIVE_PARTS = 16  # of a last axis

# Sorts and products.
TOP_K_MAX_RATIO = 8  # of the axis' size to k: XLA finds fewer than that without sorting all
CONSTANT_DOT_MAX_TERMS = 32  # of each result: code grows with them
CONSTANT_DOT_MAX_FUSED_TERMS = 2  # with more, a second axis would recompute each for every value that it reads

# Fusion: values that XLA computes again for each use, or that are materialized (lowering.planning.materialize).
MAX_FUSED_OPS = 10  # elementwise ops since the last value in memory, above which it is not computed twice
TRANSCENDENTAL_OPS = 8  # elementwise ops that one counts as: the time of an exponential over that of a sum
MAX_POST_DOMINATOR_STEPS = 256  # up the tree, after which two uses count as diverging; bounds the analysis' time

# Scans (lowering.scan_opt). With few rows, a matmul takes the time of reading the weights; with more, an iteration uses
# them as well as all iterations together do. Before the loop on CPU, its results for all iterations leave the caches:
# see the table in `hoist_matmuls`.
MAX_BATCHED_MATMUL_ROWS, MAX_BATCHED_MATMUL_ROWS_CPU = 128, 16  # of an iteration
MAX_STACKED_ELEMENTS = 1 << 26  # of a value stacked over all iterations that an optimization may keep: 256 MiB
