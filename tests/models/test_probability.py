"""TFP: densities, samples, reparameterization, chains, optimizers.

In double precision, where samplers that reject give TensorFlow's numbers exactly (docs/random.md).
"""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

tfp = pytest.importorskip("tensorflow_probability")
tfd, tfb, tfm = tfp.distributions, tfp.bijectors, tfp.mcmc

SEED = [3, 7]
A, B = np.array([0.7, 2.0, 5.0]), np.array([1.0, 2.0, 3.0])
P = np.array([0.2, 0.3, 0.5])
LOWER = np.array([[1.0, 0.0, 0.0], [0.3, 1.2, 0.0], [-0.2, 0.4, 0.8]])
POINTS = np.linspace(-1.0, 1.0, 6)[:, None]
OBSERVED = np.sin(3 * POINTS[:, 0])
SCALARS = np.float64(1.3), np.float64(0.6)


def _process(amplitude, scale):
    kernel = tfp.math.psd_kernels.MaternFiveHalves(amplitude, scale)
    return tfd.GaussianProcess(kernel, POINTS, observation_noise_variance=np.float64(0.1))


def _regression(amplitude, scale):
    kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(amplitude, scale)
    return tfd.GaussianProcessRegressionModel(
        kernel, POINTS[:3] + 0.1, POINTS, OBSERVED, observation_noise_variance=np.float64(0.1)
    )


def _mixture(a, b):
    return tfd.MixtureSameFamily(tfd.Categorical(probs=a / tf.reduce_sum(a)), tfd.Normal(b, a))


def _chain(kernel):
    def fn(start):
        made = kernel(tfd.Normal(np.float64(1.0), np.float64(0.5)).log_prob)
        return tfm.sample_chain(
            4, current_state=start, kernel=made, num_burnin_steps=1, trace_fn=lambda *_: (), seed=SEED
        )[0]

    return fn


def _hamiltonian(target):
    return tfm.HamiltonianMonteCarlo(target, step_size=np.float64(0.3), num_leapfrog_steps=3)


def _lbfgs(start):
    def value(x):
        return tf.reduce_sum((x - 0.4) ** 2 * B) + tf.reduce_sum(tf.sin(x))

    found = tfp.optimizer.lbfgs_minimize(
        lambda x: tfp.math.value_and_gradient(value, x), initial_position=start, max_iterations=20
    )
    return found.position


def _surrogate_loss(loc, scale):
    target = tfd.Gamma(np.float64(2.0), np.float64(1.0))
    return tfp.vi.monte_carlo_variational_loss(
        lambda z: target.log_prob(tf.exp(z)), tfd.Normal(loc, scale), sample_size=5, seed=SEED
    )


def _bijector(make):
    def fn(x):
        made = make()
        ndims = made.forward_min_event_ndims
        y = made.forward(x)
        return [y, made.forward_log_det_jacobian(x, event_ndims=ndims), made.inverse(tf.identity(y))]

    return fn


# Name: function, arguments, whether gradients are compared, too.
CASES = {
    "GaussianProcess.log_prob": (lambda a, b: _process(a, b).log_prob(OBSERVED), SCALARS, True),
    "GaussianProcess.mean": (lambda a, b: _process(a, b).mean(), SCALARS, False),
    "GaussianProcess.stddev": (lambda a, b: _process(a, b).stddev(), SCALARS, True),
    "GaussianProcess.sample": (lambda a, b: _process(a, b).sample(3, seed=SEED), SCALARS, True),
    "GaussianProcessRegressionModel.log_prob": (lambda a, b: _regression(a, b).log_prob(OBSERVED[:3]), SCALARS, True),
    "GaussianProcessRegressionModel.mean": (lambda a, b: _regression(a, b).mean(), SCALARS, True),
    "GaussianProcessRegressionModel.stddev": (lambda a, b: _regression(a, b).stddev(), SCALARS, True),
    "GaussianProcessRegressionModel.sample": (lambda a, b: _regression(a, b).sample(2, seed=SEED), SCALARS, True),
    "InverseGamma.sample": (lambda a, b: tfd.InverseGamma(a, b).sample(5, seed=SEED), (A, B), True),
    "VonMises.sample": (lambda a, b: tfd.VonMises(a, b).sample(5, seed=SEED), (A, B), True),
    "VonMises.log_prob": (lambda a, b: tfd.VonMises(a, b).log_prob(P), (A, B), True),
    "StudentT.log_prob": (lambda a, b: tfd.StudentT(a, b, b).log_prob(P), (A, B), True),
    "Beta.cdf": (lambda a, b: tfd.Beta(a, b).cdf(P), (A, B), True),
    "Dirichlet.log_prob": (lambda a, b: tfd.Dirichlet(a * b).log_prob(P), (A, B), True),
    "MultivariateNormalTriL.sample": (
        lambda a, b: tfd.MultivariateNormalTriL(a, tf.constant(LOWER) * b[:, None]).sample(5, seed=SEED),
        (A, B),
        True,
    ),
    "MultivariateNormalTriL.log_prob": (
        lambda a, b: tfd.MultivariateNormalTriL(a, tf.constant(LOWER) * b[:, None]).log_prob(P),
        (A, B),
        True,
    ),
    "MixtureSameFamily.sample": (lambda a, b: _mixture(a, b).sample(5, seed=SEED), (A, B), False),
    "MixtureSameFamily.log_prob": (lambda a, b: _mixture(a, b).log_prob(np.float64(0.7)), (A, B), True),
    "Categorical.sample": (lambda p: tfd.Categorical(probs=p).sample(20, seed=SEED), (P,), False),
    "Categorical.log_prob": (lambda p: tfd.Categorical(probs=p).log_prob([0, 2, 1]), (P,), True),
    "OneHotCategorical.sample": (lambda p: tfd.OneHotCategorical(probs=p).sample(20, seed=SEED), (P,), False),
    "Poisson.sample": (lambda p: tfd.Poisson(p * 20).sample(7, seed=SEED), (P,), False),
    "Binomial.sample": (lambda p: tfd.Binomial(np.float64(30.0), probs=p).sample(7, seed=SEED), (P,), False),
    "LKJ.sample": (lambda c: tfd.LKJ(3, c).sample(4, seed=SEED), (np.float64(1.7),), False),
    "LKJ.log_prob": (lambda c: tfd.LKJ(3, c).log_prob(np.eye(3) + 0.2 * (1 - np.eye(3))), (np.float64(1.7),), True),
    "WishartTriL.sample": (lambda df: tfd.WishartTriL(df, LOWER).sample(4, seed=SEED), (np.float64(5.0),), False),
    "WishartTriL.log_prob": (
        lambda df: tfd.WishartTriL(df, LOWER).log_prob(2 * LOWER @ LOWER.T),
        (np.float64(5.0),),
        True,
    ),
    "HamiltonianMonteCarlo": (_chain(_hamiltonian), (P[:2],), False),
    "NoUTurnSampler": (
        _chain(lambda t: tfm.NoUTurnSampler(t, step_size=np.float64(0.3), max_tree_depth=3)),
        (P[:2],),
        False,
    ),
    "DualAveragingStepSizeAdaptation": (
        _chain(lambda t: tfm.DualAveragingStepSizeAdaptation(_hamiltonian(t), 3)),
        (P[:2],),
        False,
    ),
    "lbfgs_minimize": (_lbfgs, (P,), False),
    "monte_carlo_variational_loss": (_surrogate_loss, SCALARS, True),
    "bijector Softplus": (_bijector(tfb.Softplus), (A,), True),
    "bijector CorrelationCholesky": (_bijector(tfb.CorrelationCholesky), (A,), True),
    "bijector FillScaleTriL": (_bijector(lambda: tfb.FillScaleTriL(diag_shift=np.float64(1e-5))), (A,), True),
    "bijector Chain": (
        _bijector(lambda: tfb.Chain([tfb.Shift(np.float64(2.0)), tfb.Scale(np.float64(3.0)), tfb.Tanh()])),
        (P,),
        True,
    ),
}
# The others take a minute together.
QUICK = ["GaussianProcess.log_prob", "MultivariateNormalTriL.sample", "OneHotCategorical.sample"]


@pytest.mark.full
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.full) for n in CASES])
def test_values_and_gradients(name):
    fn, arrays, with_gradients = CASES[name]
    function = tf.function(lambda *args: tf.nest.flatten(fn(*args)))
    tensors = [tf.constant(a) for a in arrays]
    weights = []

    def weighted(results, add):
        """Return a number that every element of the results moves differently."""
        if not weights:
            weights.extend(np.cos(np.arange(np.size(r), dtype=np.float64)).reshape(np.shape(r)) for r in results)
        return add([(w * r) for w, r in zip(weights, results, strict=True)])

    with tf.GradientTape() as tape:
        tape.watch(tensors)  # without a gradient, too: what it would need is left in the function, which converts
        expected = function(*tensors)
        if with_gradients:
            loss = weighted(expected, lambda parts: tf.add_n([tf.reduce_sum(p) for p in parts]))
    with jax.enable_x64(True):
        jax_fn = tf2jax.convert_functional(function, *(tf.TensorSpec(a.shape, a.dtype) for a in arrays))
        for actual, value in zip(jax.jit(jax_fn)(*arrays), expected, strict=True):
            assert actual.dtype == value.dtype.as_numpy_dtype
            np.testing.assert_allclose(actual, value, rtol=1e-7, atol=1e-9)
        if with_gradients:
            by_tf = tape.gradient(loss, tensors, unconnected_gradients="zero")
            gradients = jax.jit(
                jax.grad(lambda args: weighted(jax_fn(*args), lambda parts: sum(p.sum() for p in parts)))
            )(list(arrays))
            for actual, value in zip(gradients, by_tf, strict=True):
                np.testing.assert_allclose(actual, value, rtol=1e-6, atol=1e-8)
