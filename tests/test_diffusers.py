"""The diffusers schedulers and pipeline: the core's runs bit for bit, diffusers' contract, swaps, memory."""

import copy
import inspect
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("diffusers")

from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel

from levydiff import DLIM, DLPM, CosineSchedule, Denoiser, LevyProcess
from levydiff.diffusers import DLIMScheduler, DLPMScheduler
from levydiff.pipeline import LevyPipeline
from levydiff.rng import SampleStreams
from levydiff.timesteps import BetaSchedule, spaced_steps

F64 = torch.float64
SHAPE = (3, 2, 4, 4)
BOTH = pytest.mark.parametrize("kind", [DLPMScheduler, DLIMScheduler])


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class Network(torch.nn.Module):
    """A float32 network of (x, timestep), neither linear nor the same at all times."""

    def __init__(self, channels=2):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x, n):
        return torch.tanh(self.conv(x)) * torch.cos(0.01 * torch.as_tensor(n)).reshape(-1, 1, 1, 1) + 0.1 * x


class InTime(torch.nn.Module):
    """The same network as a backbone of the core, which counts time in (0, t_max]."""

    def __init__(self, network, process, steps=1000):
        super().__init__()
        self.network, self.factor = network, steps / process.schedule.t_max

    def forward(self, x, t, **cond):
        return self.network(x, (t.double() * self.factor).round().long() - 1, **cond)


@torch.no_grad()
def walk(scheduler, network, x, dtype=torch.float32, **kwargs):
    for n in scheduler.timesteps:
        x = scheduler.step(network(x.to(dtype), n), n, x, **kwargs).prev_sample
    return x


def core(scheduler, network, **options):
    method = DLPM if isinstance(scheduler, DLPMScheduler) else DLIM
    return method(Denoiser(InTime(network, scheduler.process), scheduler.process), grid=scheduler.grid, **options)


def tiny_unet(**options):
    blocks = {"down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",)}
    return UNet2DModel(8, 1, 1, block_out_channels=(8,), norm_num_groups=4, layers_per_block=1, **blocks, **options)


def quiet(unet, scheduler):
    pipeline = LevyPipeline(unet, scheduler)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


# ---------------------------------------------------------------------------------------------------------------------
# The schedulers are the core's samplers.


@pytest.mark.parametrize("beta_schedule", ["linear", "cosine"])
@pytest.mark.parametrize("spacing", ["trailing", "quadratic", "leading"])
@pytest.mark.parametrize(
    ("kind", "config", "options"),
    [
        (DLPMScheduler, {}, {}),
        (DLPMScheduler, {"consistent_start": True}, {"consistent_start": True}),
        (DLPMScheduler, {"isotropic": False, "alpha": 1.4}, {}),
        (DLPMScheduler, {"alpha": 0.45}, {}),
        (DLPMScheduler, {"alpha": 2.0}, {}),
        (DLIMScheduler, {}, {}),
        (DLIMScheduler, {"solver_order": 2}, {"order": 2}),
        (DLIMScheduler, {"rho": 0.5}, {"rho": 0.5}),
    ],
)
def test_a_run_is_the_cores_bit_for_bit(kind, config, options, spacing, beta_schedule):
    network = Network()
    scheduler = kind(beta_schedule=beta_schedule, timestep_spacing=spacing, **config)
    scheduler.set_timesteps(12)
    x = walk(scheduler, network, scheduler.init_latents(SHAPE, generator(1)))
    expected = core(scheduler, network, **options)(SHAPE, generator(1), dtype=F64)
    assert x.dtype == F64 and torch.equal(x, expected)
    assert not torch.equal(x, core(scheduler, network, **options)(SHAPE, generator(2), dtype=F64))


@BOTH
def test_the_core_with_its_own_grid_and_schedule(kind):
    # Nothing here comes from the scheduler: the paper's cosine schedule and t_i = t_max i/T of the core itself.
    network, process = Network(), LevyProcess(1.6, CosineSchedule())
    scheduler = kind(alpha=1.6, beta_schedule="cosine")
    scheduler.set_timesteps(20)
    x = walk(scheduler, network, scheduler.init_latents(SHAPE, generator()))
    method = DLPM if kind is DLPMScheduler else DLIM
    expected = method(Denoiser(InTime(network, process), process), 20)(SHAPE, generator(), dtype=F64)
    torch.testing.assert_close(x, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(scheduler.grid, process.schedule.grid(20), rtol=1e-15, atol=0)


@BOTH
def test_generators(kind):
    scheduler = kind()

    def network(x, n):  # a convolution may round by batch size
        return 0.1 * x

    def run(source):
        scheduler.set_timesteps(6)
        return walk(scheduler, network, scheduler.init_latents(SHAPE, source))

    torch.manual_seed(5)
    x = run(None)
    torch.manual_seed(5)
    sampler = core(scheduler, network)
    assert torch.equal(x, sampler(SHAPE, dtype=F64))
    # a list: each sample is what its generator gives alone
    x = run([generator(seed) for seed in range(3)])
    assert torch.equal(x, torch.cat([sampler((1, *SHAPE[1:]), generator(seed), dtype=F64) for seed in range(3)]))
    with pytest.raises(ValueError, match="generator must be a list of one for each of the 3 samples, got 2"):
        run([generator(), generator()])
    # a run without init_latents begins with its first step, from that step's generator
    start = scheduler.sample_noise(SHAPE, generator(7)) * scheduler.init_noise_sigma
    runs = []
    for seed in (8, 8, 9):
        scheduler.set_timesteps(6)
        runs.append(walk(scheduler, network, start, generator=generator(seed)))
    assert runs[0].dtype == torch.float32
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2]) == (kind is DLIMScheduler)


def test_latents_are_heavy_tailed_noise():
    scheduler = DLIMScheduler(alpha=1.5)
    noise = scheduler.sample_noise(SHAPE, generator(3))
    streams = SampleStreams.seeded(3, generator(3))
    assert noise.dtype == torch.float32
    assert torch.equal(noise, scheduler.process.noise(SHAPE, streams)[0])
    assert torch.equal(scheduler.init_latents(SHAPE, generator(3)), scheduler.init_noise_sigma * noise.double())
    assert DLIMScheduler(alpha=0.3).sample_noise(SHAPE).dtype == F64
    assert scheduler.sample_noise(SHAPE, dtype=torch.float16).dtype == torch.float16
    # Beyond 65504 half precision has infinity alone, which would make NaN of the weights. P(|ε| > 65504) is about
    # 65504^-0.5 = 0.004 at α = 1/2.
    heavy = DLIMScheduler(alpha=0.5)
    with pytest.raises(FloatingPointError, match="do not fit torch.float16"):
        heavy.sample_noise((5000, 2), generator(), dtype=torch.float16)
    with pytest.raises(FloatingPointError, match="do not fit torch.float16"):
        heavy.add_noise(torch.zeros(5000, 2).half(), heavy.sample_noise((5000, 2), generator()), torch.tensor([0]))
    # P(|ε| > 10) is about 0.01 for SαS(1) with α = 1.5, and 1e-12 for N(0, 2)
    assert float((scheduler.sample_noise((20_000, 1)).abs() > 10).float().mean()) > 0.005


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, F64])
def test_the_result_has_the_dtype_of_the_sample(kind, dtype):
    scheduler = kind()
    sample = torch.randn(SHAPE, generator=generator()).to(dtype)
    out = scheduler.step(torch.zeros(SHAPE), 500, sample, generator())
    assert out.prev_sample.dtype == out.pred_original_sample.dtype == dtype
    if dtype == torch.float16:  # a denoised sample may overflow on the way, the sample may not
        out = kind().step(torch.zeros(SHAPE), 999, 1e3 * sample)
        assert bool(out.prev_sample.isfinite().all()) and not bool(out.pred_original_sample.isfinite().all())
        with pytest.raises(FloatingPointError, match="do not fit torch.float16"):
            kind().step(-1e7 * sample.sign().float(), 0, 6e4 * sample.sign())


# ---------------------------------------------------------------------------------------------------------------------
# At α = 2 they are diffusers' own.


@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize("prediction_type", ["epsilon", "sample"])
@pytest.mark.parametrize("betas", [{}, {"beta_schedule": "scaled_linear"}, {"trained_betas": [0.002] * 500}])
def test_ddim_at_alpha_2(betas, prediction_type, eta):
    # Our noise is √2 times theirs, so with x' = √2 x and the network √2 f(x'/√2), our x' is √2 times their x.
    same = {"timestep_spacing": "leading", "prediction_type": prediction_type, **betas}
    same["num_train_timesteps"] = 500 if "trained_betas" in betas else 1000
    dlim, ddim = DLIMScheduler(alpha=2.0, rho=eta, **same), DDIMScheduler(clip_sample=False, **same)
    ddim.alphas_cumprod = (1 - ddim.betas.double()).cumprod(0)  # theirs is float32
    network = Network().double()
    for scheduler in (dlim, ddim):
        scheduler.set_timesteps(20)
    assert torch.equal(dlim.timesteps, ddim.timesteps)
    ours = dlim.init_latents(SHAPE, generator(1))
    theirs = ours / math.sqrt(2)
    streams = copy.deepcopy(dlim._run.generator)
    with torch.no_grad():
        for n in dlim.timesteps:
            output = network(theirs, n)
            noise = dlim.process.noise(SHAPE, streams)[0].double() / math.sqrt(2) if eta and n > 0 else 0 * theirs
            ours = dlim.step(math.sqrt(2) * network(ours / math.sqrt(2), n), n, ours).prev_sample
            theirs = ddim.step(output, n, theirs, eta=eta, variance_noise=noise).prev_sample
    tolerance = 1e-10 if eta == 0 else 1e-5  # our noise is drawn in float32
    torch.testing.assert_close(ours, math.sqrt(2) * theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("beta_schedule", ["linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid"])
def test_noise_levels_are_ddpms(beta_schedule):
    ours, theirs = DLPMScheduler(alpha=2.0, beta_schedule=beta_schedule), DDPMScheduler(beta_schedule=beta_schedule)
    abar = (1 - theirs.betas.double()).cumprod(0)
    torch.testing.assert_close(ours.betas, theirs.betas.double(), rtol=1e-9, atol=1e-12)
    x, noise = torch.randn(1000, 2, dtype=F64), torch.randn(1000, 2, dtype=F64)
    noisy = ours.add_noise(x, noise, torch.arange(1000))
    expected = abar.sqrt()[:, None] * x + (1 - abar).sqrt()[:, None] * noise
    torch.testing.assert_close(noisy, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(theirs.add_noise(x, noise, torch.arange(1000)), noisy, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("alpha", [0.7, 1.7])
def test_a_table_of_betas_at_any_alpha(alpha):
    betas = (0.1, 0.3, 0.05)
    schedule = LevyProcess(alpha, BetaSchedule(betas=betas)).schedule
    chain = schedule.chain(schedule.grid(3))
    torch.testing.assert_close(1 - chain.gamma[1:] ** alpha, torch.tensor(betas, dtype=F64))
    torch.testing.assert_close(chain.sigma[1:] ** alpha, torch.tensor(betas, dtype=F64))
    t = torch.linspace(0.01, 1, 50, dtype=F64)
    torch.testing.assert_close(schedule.time_at(schedule.log_ratio(t)), t)
    torch.testing.assert_close(schedule.signal(t) + schedule.noise(t), torch.ones_like(t))
    with pytest.raises(ValueError, match=r"betas must be one or more numbers in \(0, 1\), got \(0.1, 1.0\)"):
        BetaSchedule(betas=(0.1, 1.0))


@pytest.mark.parametrize("spacing", ["trailing", "leading", "linspace"])
def test_timesteps_are_diffusers(spacing):
    ours, theirs = DLIMScheduler(timestep_spacing=spacing), DDPMScheduler(timestep_spacing=spacing)
    for steps in (1, 2, 7, 50, 333, 1000):
        ours.set_timesteps(steps)
        theirs.set_timesteps(steps)
        assert torch.equal(ours.timesteps, theirs.timesteps), steps


@pytest.mark.parametrize("spacing", ["trailing", "quadratic", "leading", "linspace"])
def test_timesteps_fall(spacing):
    for steps in [*range(1, 1001, 7), 61, 1000]:  # diffusers' own trailing spacing has 62 of 61
        rows = spaced_steps(1000, steps, spacing)
        assert len(rows) == steps and rows[0] >= 1 and rows[-1] <= 1000 and bool((rows.diff() > 0).all())


# ---------------------------------------------------------------------------------------------------------------------
# add_noise, predictions, clipping.


def test_add_noise():
    scheduler = DLPMScheduler(alpha=1.5, beta_schedule="cosine")
    process = LevyProcess(1.5)
    x_0, n = torch.randn(4, 3, 8, 8, dtype=F64), torch.tensor([0, 10, 500, 999])
    x_t, eps, _ = process.perturb(x_0, 0.9946 * (n + 1) / 1000, generator())
    torch.testing.assert_close(scheduler.add_noise(x_0, eps, n), x_t, rtol=1e-5, atol=1e-5)
    # the noise is used as given, Gaussian too
    noise = torch.randn(4, 3, 8, 8, dtype=F64)
    change = scheduler.add_noise(x_0, noise, n) - scheduler.add_noise(x_0, 0 * noise, n)
    torch.testing.assert_close(change, process.levels(0.9946 * (n.double() + 1) / 1000, x_0)[1] * noise)
    assert torch.equal(scheduler.add_noise(x_0, eps, n[2:3])[1], scheduler.add_noise(x_0, eps, n[2].expand(4))[1])
    assert scheduler.add_noise(x_0.half(), eps, n).dtype == torch.float16
    # and comes off again
    scheduler.set_timesteps(1)
    out = scheduler.step(eps, 999, scheduler.add_noise(x_0, eps, torch.tensor(999)))
    torch.testing.assert_close(out.prev_sample, x_0)
    torch.testing.assert_close(out.pred_original_sample, x_0)


@BOTH
def test_predicting_the_sample_is_predicting_the_noise(kind):
    network = Network()
    outputs = []
    for prediction_type in ("epsilon", "sample"):
        scheduler = kind(prediction_type=prediction_type)
        scheduler.set_timesteps(10)
        x = scheduler.init_latents(SHAPE, generator())
        with torch.no_grad():
            for n in scheduler.timesteps:
                x_0 = network(x.float(), n).double()
                level = scheduler.add_noise(x_0, torch.zeros_like(x_0), n)
                sigma_bar = scheduler.add_noise(torch.zeros_like(x_0), torch.ones_like(x_0), n)
                out = scheduler.step(x_0 if prediction_type == "sample" else (x - level) / sigma_bar, n, x)
                torch.testing.assert_close(out.pred_original_sample, x_0)
                x = out.prev_sample
        outputs.append(x)
    torch.testing.assert_close(*outputs)
    with pytest.raises(ValueError, match="prediction_type must be 'epsilon' or 'sample', got 'v_prediction'"):
        kind(prediction_type="v_prediction")


@BOTH
def test_nothing_is_clipped_unless_asked_for(kind):
    x, zero = 1e4 * torch.randn(SHAPE, generator=generator()), torch.zeros(SHAPE)
    assert not kind().config.clip_sample
    assert float(kind().step(zero, 500, x).pred_original_sample.abs().max()) > 1e4
    scheduler = kind(clip_sample=True, clip_sample_range=2.0)
    out = scheduler.step(zero, 500, x, generator())
    assert float(out.pred_original_sample.abs().max()) == 2.0
    # the step goes to the clipped x̂_0, as one that predicts it
    same = kind(prediction_type="sample").step(out.pred_original_sample, 500, x, generator())
    torch.testing.assert_close(out.prev_sample, same.prev_sample)


# ---------------------------------------------------------------------------------------------------------------------
# The state of a run.


def test_the_chain_of_a_is_explicit_and_reset():
    scheduler, network = DLPMScheduler(), Network()
    scheduler.set_timesteps(8)
    assert scheduler._run is None
    x = scheduler.init_latents(SHAPE, generator())
    assert scheduler._run.path.a.shape == (8, 3, 1, 1, 1)
    first = walk(scheduler, network, x)
    # down the timesteps a second time is a new run, with a new A
    second = walk(scheduler, network, x, generator=generator(1))
    assert not torch.equal(first, second)
    scheduler.set_timesteps(8)
    assert scheduler._run is None
    assert torch.equal(second, walk(scheduler, network, x, generator=generator(1)))
    scheduler.step(x, scheduler.timesteps[0], x)
    with pytest.raises(ValueError, match=r"sample must have the shape \(3, 2, 4, 4\) that the run began with, got \(2"):
        scheduler.step(x[:2], scheduler.timesteps[1], x[:2])


@pytest.mark.parametrize("scheduler", [DLPMScheduler(), DLIMScheduler(solver_order=2), DLIMScheduler(rho=1.0)])
def test_a_copy_goes_on_alone(scheduler, tmp_path):
    network = Network()
    scheduler.set_timesteps(8)
    x = scheduler.init_latents(SHAPE, generator())
    with torch.no_grad():
        for n in scheduler.timesteps[:4]:
            x = scheduler.step(network(x.float(), n), n, x).prev_sample
        twin = copy.deepcopy(scheduler)
        twin.save_pretrained(tmp_path)
        ends = []
        for each in (scheduler, twin):
            y = x
            for n in scheduler.timesteps[4:]:
                y = each.step(network(y.float(), n), n, y).prev_sample
            ends.append(y)
    assert torch.equal(*ends)
    saved = json.loads((tmp_path / "scheduler_config.json").read_text())
    assert set(saved) - {"_class_name", "_diffusers_version"} == set(inspect.signature(type(twin)).parameters)


def test_order_2_does_not_extrapolate_over_a_gap():
    network, first, second = Network(), DLIMScheduler(), DLIMScheduler(solver_order=2)
    x = torch.randn(SHAPE, dtype=F64)
    for scheduler in (first, second):
        scheduler.set_timesteps(10)
    with torch.no_grad():
        output = network(x.float(), 999)
        second.step(output, 999, x)
        skipped = second.step(output, 499, x).prev_sample
        torch.testing.assert_close(skipped, first.step(output, 499, x).prev_sample)


@BOTH
def test_refusals(kind):
    scheduler = kind()
    x = torch.zeros(SHAPE)
    with pytest.raises(ValueError, match="num_inference_steps must be at most the 1000 of training, got 1001"):
        scheduler.set_timesteps(1001)
    with pytest.raises(ValueError, match="num_inference_steps must be a whole number of at least 1, got 0"):
        scheduler.set_timesteps(0)
    scheduler.set_timesteps(10)
    with pytest.raises(ValueError, match=r"timestep must be one of scheduler.timesteps \(999, ..., 99\), got 3"):
        scheduler.step(x, 3, x)
    with pytest.raises(ValueError, match="model_output must have shape"):
        scheduler.step(x[:, :1], 999, x)
    with pytest.raises(FloatingPointError, match="met a non-finite value at timestep 999: the denoiser returned 96"):
        scheduler.step(x * torch.nan, 999, x)
    with pytest.raises(ValueError, match="timestep_spacing must be 'trailing'.*got 'even'"):
        kind(timestep_spacing="even")
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 2\], got 3"):
        kind(alpha=3)
    with pytest.raises(NotImplementedError, match="cubic is not implemented"):
        kind(beta_schedule="cubic")


def test_dlim_refuses_noise_with_order_2():
    with pytest.raises(ValueError, match="order must be 1 where rho is above 0"):
        DLIMScheduler(rho=0.5, solver_order=2)


# ---------------------------------------------------------------------------------------------------------------------
# What diffusers asks of its own schedulers.

CONFIG = {"num_train_timesteps": 1000, "beta_start": 0.0001, "beta_end": 0.02, "beta_schedule": "linear"}


def dummy():
    sample = torch.rand(4, 3, 8, 8, generator=generator())
    return sample, 0.1 * sample


@BOTH
@pytest.mark.parametrize("timestep", [0, 1, 999])
@pytest.mark.parametrize("config", [{}, {"num_train_timesteps": 1200}, {"beta_end": 0.01}, {"alpha": 1.2}])
def test_contract_save_and_load(kind, config, timestep, tmp_path):
    scheduler = kind(**{**CONFIG, **config})
    scheduler.save_config(tmp_path)
    loaded = kind.from_pretrained(tmp_path)
    sample, residual = dummy()
    one, two = (each.step(residual, timestep, sample, generator=generator()) for each in (scheduler, loaded))
    assert torch.equal(one.prev_sample, two.prev_sample)
    plain = {key: value for key, value in scheduler.config.items() if key != "_use_default_values"}
    assert plain == {key: value for key, value in loaded.config.items() if key != "_use_default_values"}


@BOTH
def test_contract_compatibles(kind):
    scheduler = kind(**CONFIG, alpha=1.3, timestep_spacing="leading")
    assert {DDPMScheduler, DDIMScheduler, DLPMScheduler, DLIMScheduler} == set(scheduler.compatibles)
    for other in scheduler.compatibles:
        there = other.from_config(scheduler.config)
        back = kind.from_config(there.config)
        assert dict(scheduler.config) == {k: v for k, v in back.config.items() if k in scheduler.config}
        more = set(back.config) - set(scheduler.config)
        assert not more & set(inspect.signature(kind.__init__).parameters)


@BOTH
def test_contract_step(kind):
    scheduler = kind(**CONFIG, timestep_spacing="leading")
    sample, residual = dummy()
    assert scheduler.step(residual, 0, sample).prev_sample.shape == sample.shape
    assert scheduler.step(residual, 1, sample).prev_sample.shape == sample.shape
    for timestep in (0, 20, torch.tensor(20), torch.tensor([20])):
        scheduler.set_timesteps(50)
        as_dict = scheduler.step(residual, timestep, sample, generator=generator())
        scheduler.set_timesteps(50)
        as_tuple = scheduler.step(residual, timestep, sample, generator=generator(), return_dict=False)
        assert isinstance(as_tuple, tuple) and list(as_dict) == ["prev_sample", "pred_original_sample"]
        assert all(torch.equal(a, b) for a, b in zip(as_tuple, as_dict.values(), strict=True))


@BOTH
def test_contract_public_api(kind):
    scheduler = kind(**CONFIG)
    sample, noise = dummy()
    assert 0.99 < scheduler.init_noise_sigma <= 1 and kind.order == 1 and len(scheduler) == 1000
    assert torch.equal(scheduler.timesteps, torch.arange(999, -1, -1))
    assert scheduler.scale_model_input(sample, 0.0) is sample
    scheduler.set_timesteps(100, device="cpu")
    assert scheduler.num_inference_steps == len(scheduler.timesteps) == 100
    assert scheduler.timesteps.dtype == torch.int64
    assert scheduler.add_noise(sample, noise, scheduler.timesteps[5][None]).shape == sample.shape
    assert "kwargs" not in inspect.signature(kind.__init__).parameters
    scheduler.dummy_attribute = 5
    scheduler.register_to_config(test_attribute=5)
    assert scheduler.dummy_attribute == 5
    with pytest.warns(FutureWarning):
        assert scheduler.test_attribute == 5
    with pytest.raises(AttributeError, match=f"'{kind.__name__}' object has no attribute 'does_not_exist'"):
        _ = scheduler.does_not_exist


@BOTH
def test_contract_trained_betas(kind, tmp_path):
    scheduler = kind(**CONFIG, trained_betas=np.array([0.1, 0.3]))
    scheduler.save_pretrained(tmp_path)
    loaded = kind.from_pretrained(tmp_path)
    assert scheduler.betas.tolist() == loaded.betas.tolist() == pytest.approx([0.1, 0.3])
    assert scheduler.timesteps.tolist() == [1, 0] and len(loaded) == 2


@BOTH
def test_contract_full_loop_is_deterministic(kind):
    def model(x, t):
        return x * t / (t + 1)

    ends = []
    for _ in range(2):
        scheduler = kind(**CONFIG)
        scheduler.set_timesteps(10)
        ends.append(walk(scheduler, model, dummy()[0], generator=generator()))
    assert torch.equal(*ends) and bool(torch.isfinite(ends[0]).all())


def test_swaps():
    # A default of one class is a default of the other, so that a config names the same process in all of them.
    for config in (
        {},
        {"beta_schedule": "squaredcos_cap_v2", "num_train_timesteps": 100},
        {"trained_betas": [0.1] * 9},
    ):
        ddpm = DDPMScheduler(**config)
        dlpm = DLPMScheduler.from_config(ddpm.config, alpha=1.5)
        dlim = DLIMScheduler.from_config(dlpm.config)
        back = DDPMScheduler.from_config(dlim.config)
        assert dlim.config.alpha == 1.5 and not dlim.config.clip_sample
        assert torch.equal(dlim.betas, dlpm.betas) and torch.equal(back.betas, ddpm.betas)
        torch.testing.assert_close(dlim.betas, ddpm.betas.double(), rtol=1e-6, atol=0)
    # a DLIM's options wait in a DLPM's config
    dlpm = DLPMScheduler.from_config(DLIMScheduler(solver_order=2).config)
    assert DLIMScheduler.from_config(dlpm.config).config.solver_order == 2
    with pytest.raises(NotImplementedError, match="cosine is not implemented"):
        DDPMScheduler.from_config(DLPMScheduler(beta_schedule="cosine").config)


# ---------------------------------------------------------------------------------------------------------------------
# The pipeline.


@BOTH
def test_the_pipeline_is_the_core_bit_for_bit(kind):
    class Sample(torch.nn.Module):
        def __init__(self, unet):
            super().__init__()
            self.unet = unet

        def forward(self, x, n, label=None):
            return self.unet(x, n, class_labels=label).sample

    unet = tiny_unet(num_class_embeds=4).eval()
    pipeline = quiet(unet, kind(alpha=1.6))
    sampler = core(pipeline.scheduler, Sample(unet))
    label = torch.tensor([0, 2])
    x = pipeline(2, generator(), 5, label, output_type="latent").images
    sampler = core(pipeline.scheduler, Sample(unet))
    assert x.dtype == torch.float32
    assert torch.equal(x, sampler((2, 1, 8, 8), generator(), label=label))
    assert torch.equal(x, pipeline(2, generator(), 5, [0, 2], output_type="latent").images)
    each = pipeline(2, [generator(1), generator(2)], 5, 3, output_type="latent").images
    alone = pipeline(1, generator(2), 5, 3, output_type="latent").images
    torch.testing.assert_close(each[1:], alone, rtol=1e-4, atol=1e-4)  # a network may round by batch size


@BOTH
def test_the_pipeline_saves_and_loads(kind, tmp_path):
    pipeline = quiet(tiny_unet(), kind(alpha=1.6, beta_schedule="cosine"))
    pipeline(1, num_inference_steps=2)  # a run leaves nothing behind
    pipeline.save_pretrained(tmp_path)
    loaded = LevyPipeline.from_pretrained(tmp_path)
    loaded.set_progress_bar_config(disable=True)
    assert type(loaded.scheduler) is kind and loaded.scheduler.config.alpha == 1.6
    assert torch.equal(*(p(2, generator(), 4, output_type="latent").images for p in (pipeline, loaded)))


def test_the_pipelines_outputs(capfd):
    pipeline = LevyPipeline(tiny_unet(), DLIMScheduler())
    raw, pt, array, pil = (
        pipeline(2, generator(), 3, output_type=kind).images for kind in ("latent", "pt", "np", "pil")
    )
    assert "3/3" in capfd.readouterr().err  # the progress bar
    torch.testing.assert_close(pt, (raw / 2 + 0.5).clamp(0, 1))
    np.testing.assert_array_equal(array, pt.permute(0, 2, 3, 1).numpy())
    assert pil[0].size == (8, 8) and len(pil) == 2
    assert torch.equal(pipeline(2, generator(), 3, output_type="pt", return_dict=False)[0], pt)
    for arguments, message in [
        ({"output_type": "jpeg"}, "output_type must be one of pil, np, pt, latent, got 'jpeg'"),
        ({"guidance_scale": 2.0}, "class_labels must be given with a guidance_scale other than 1, got 2.0"),
        ({"guidance_scale": 2.0, "class_labels": 1}, "unet.config.num_class_embeds must count the classes"),
        ({"class_labels": [1, 2, 3]}, "class_labels must be one class, or one for each of 2 images, got 3"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
    ]:
        with pytest.raises(ValueError, match=message):
            pipeline(**{"batch_size": 2, "num_inference_steps": 2, **arguments})


def test_guidance():
    # ε̂(x, ∅) + w (ε̂(x, c) - ε̂(x, ∅)), with the last class for ∅; here the network is ε̂(x, c) = c.
    class Labels(UNet2DModel):
        def forward(self, sample, timestep, class_labels=None):
            return type("Output", (), {"sample": class_labels.reshape(-1, 1, 1, 1) + 0 * sample})

    blocks = {"down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",), "norm_num_groups": 4}
    unet = Labels(8, 1, 1, block_out_channels=(8,), num_class_embeds=11, **blocks)
    scheduler = DLIMScheduler(prediction_type="sample")
    x = quiet(unet, scheduler)(2, generator(), 3, [4, 7], guidance_scale=3.0, output_type="latent").images
    expected = torch.tensor([10 + 3 * (4 - 10), 10 + 3 * (7 - 10)]).float()
    torch.testing.assert_close(x, expected.reshape(2, 1, 1, 1).expand(2, 1, 8, 8))


@pytest.mark.parametrize("heavy", [True, False])
@BOTH
def test_diffusers_training_loop(kind, heavy):
    # diffusers' unconditional example, with the scheduler exchanged; and its torch.randn too (heavy), or not.
    unet, scheduler = tiny_unet(), kind(num_train_timesteps=100, alpha=1.8)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-2)
    images = torch.randn(16, 1, 8, 8, generator=generator()).sign() * 0.5
    losses = []
    for _ in range(30):
        noise = scheduler.sample_noise(images.shape) if heavy else torch.randn(images.shape)
        timesteps = torch.randint(0, scheduler.config.num_train_timesteps, (len(images),), dtype=torch.int64)
        noisy = scheduler.add_noise(images, noise, timesteps)
        # heavy noise has no variance: the loss of each image is a length, as in levydiff's own losses
        error = (unet(noisy, timesteps).sample - noise).square().flatten(1).mean(1)
        loss = error.sqrt().mean() if heavy else error.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        # to the median of what ε̂ = 0 misses: a mean would follow the largest A of the batch
        losses.append(float(error.detach().median() / noise.square().flatten(1).mean(1).median()))
    assert np.mean(losses[-5:]) < 0.8 < 0.9 < losses[0]
    drawn = quiet(unet, scheduler)(batch_size=2, generator=generator(), num_inference_steps=10).images
    assert len(drawn) == 2


# ---------------------------------------------------------------------------------------------------------------------
# Memory.

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "images.py"


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc to measure the peak")
def test_memory_does_not_grow_with_size_times_steps():
    # 64 images of 3×64×64 are 6.3 MB in float64, 1000 times that 6.3 GB. All A of the 1000 steps are drawn before the
    # first, so a few steps reach the peak of all; "benchmarks/images.py --memory 1000" makes them all.
    # With this setting malloc gives large blocks back at once, so that the peak is that of the tensors in use.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    command = [sys.executable, BENCHMARK, "--memory", "8"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    peaks = re.findall(r"^(\w+): ([\d.]+) MB", run.stdout, re.MULTILINE)
    assert [name for name, _ in peaks] == ["DLPM", "DLPMScheduler"]
    assert all(6.3 < float(peak) < 40 for _, peak in peaks), run.stdout


@pytest.mark.parametrize("name", ["thresholding", "rescale_betas_zero_snr"])
def test_what_we_do_not_do_is_refused(name):
    config = {**DDPMScheduler().config, name: True}
    with pytest.raises(ValueError, match=f"{name} must be False for DLPMScheduler, got True"):
        DLPMScheduler.from_config(config)


@pytest.mark.parametrize("n", [-1, 1000])
def test_add_noise_refuses_timesteps_outside(n):
    x = torch.zeros(2, 1, 4, 4)
    with pytest.raises(ValueError, match=f"timesteps must lie in 0 ... 999, got .*{n}"):
        DLPMScheduler().add_noise(x, x, torch.tensor([5, n]))


@pytest.mark.parametrize(
    ("name", "value"), [("steps_offset", 1), ("set_alpha_to_one", False), ("variance_type", "fixed_large")]
)
def test_options_of_theirs_that_we_do_not_have_are_refused(name, value):
    theirs = (DDPMScheduler if name == "variance_type" else DDIMScheduler)(**{name: value})
    with pytest.raises(ValueError, match=f"{name} must be .* for DLIMScheduler, got {value!r}"):
        DLIMScheduler.from_config(theirs.config)
    usual = {"steps_offset": 0, "set_alpha_to_one": True, "variance_type": "fixed_small"}[name]
    DLIMScheduler.from_config(theirs.config, **{name: usual})  # an option given here replaces the config's


def test_a_second_walk_from_the_middle_is_a_new_run():
    scheduler = DLPMScheduler(alpha=1.5)
    scheduler.set_timesteps(10)
    x = torch.zeros(2, 1, 4, 4, dtype=torch.float64)

    def walk(seed):
        generator = torch.Generator().manual_seed(seed)
        y = x
        for n in scheduler.timesteps[4:]:
            y = scheduler.step(torch.ones_like(y), n, y, generator).prev_sample
        return y

    first, other, again = walk(0), walk(1), walk(0)
    assert torch.equal(first, again) and not torch.equal(first, other)
