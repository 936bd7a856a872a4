r"""The implicit samplers DLIM, DDIM and Cauchy DLIM, and DLIM's latent space.

With ρ_t = 0 the step is deterministic. In :math:`y = x/\barγ` and :math:`ν = \barσ/\barγ` it is an Euler step of
the flow

.. math::  \frac{dy}{dν} = \hat ε, \qquad\text{or}\qquad
    x_{t-1} = \frac{\barσ_{t-1}}{\barσ_t} x_t + \barγ_{t-1}\left(1 - \frac{ν_{t-1}}{ν_t}\right) \hat x_0,

exact if :math:`\hat x_0` does not change along the way. The second-order method puts in its place an extrapolation
from this and the previous step,

.. math::  \hat x_0 + c\,(\hat x_0 - \hat x_0^{prev}), \qquad
    c = \frac{\log(ν_t/ν_{t-1})}{2\log(ν_{t+1}/ν_t)}, \qquad \text{last step: } c = \frac{ν_1^α}{ν_2^α - ν_1^α},

linear in log ν (as DPM-Solver++ 2M, Lu et al., 2022), and at the end, where log ν diverges, linear in ν^α, the
variable in which :math:`\hat x_0` is smooth down to 0. It costs no further network call.

A deterministic flow can be run backwards, from data to latents: :meth:`DLIM.encode`. Latents are SαS, and so are their
combinations by :func:`interpolate`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .checks import check_alpha, check_data, check_shape
from .conditions import to_device
from .denoise import Predictor
from .kl import check_cauchy
from .rng import uniform_pair
from .sampler import Run, Sampler
from .schedule import Chain, Spacing, Step


def interpolate(x: Tensor, y: Tensor, weight: float | Tensor, alpha: float) -> Tensor:
    r"""Between two latents, keeping their law: :math:`(1-w)^{1/α} x + w^{1/α} y` is SαS(1) if x and y are,
    independently.

    Arguments:
        x, y: Latents of one shape.
        weight: w in [0, 1], a number or a tensor that broadcasts against them.
        alpha: The stability index.

    Example:
        >>> interpolate(torch.ones(2), torch.zeros(2), 0.19, alpha=2.0)
        tensor([0.9000, 0.9000])
    """
    alpha = check_alpha(alpha)
    if not x.is_floating_point():
        raise ValueError(f"x must be floating-point, got {x.dtype}")
    w = torch.as_tensor(weight, dtype=x.dtype, device=x.device)
    if not bool(((w >= 0) & (w <= 1)).all()):
        raise ValueError(f"weight must lie in [0, 1], got {weight}")
    check_shape("y", y, tuple(x.shape))
    return (1.0 - w) ** (1.0 / alpha) * x + w ** (1.0 / alpha) * y


class DLIM(Sampler):
    r"""Denoising Lévy Implicit Model: deterministic by default.

    .. math::  x_{t-1} = \frac{x_t - \barσ_t\hat ε}{γ_t} + (\barσ_{t-1}^α - ρ_t^α)^{1/α}\, \hat ε + ρ_t \sqrt{A_t}\, G.

    Reference: Shariatian, Simsekli & Durmus, *Heavy-Tailed Diffusion with Denoising Lévy Probabilistic Models*, 2024.

    Arguments:
        denoiser, steps, spacing, grid: See :class:`~levydiff.sampler.Sampler`.
        rho: The noise that is renewed at each step. A number ρ in [0, 1] means
            :math:`ρ_t = ρ\, \barσ_{t-1}σ_t/\barσ_t`: 0 is deterministic, 1 is DDPM at α = 2. A tensor of shape
            (T,) gives ρ_1 … ρ_T themselves, each in [0, σ̄_{t-1}].
        order: 1, or 2 for the multistep method, which is deterministic only.

    Example:
        >>> from levydiff import LevyProcess, StableOracle
        >>> oracle = StableOracle(LevyProcess(1.7))
        >>> sampler = DLIM(oracle, steps=25, order=2)
        >>> x = sampler((5, 2), torch.Generator().manual_seed(0))
        >>> latents = sampler.encode(x)
        >>> torch.allclose(sampler(latents.shape, x_T=latents), x, atol=1e-5)
        True
    """

    def __init__(
        self,
        denoiser: Predictor,
        steps: int = 100,
        *,
        spacing: Spacing | None = None,
        grid: Tensor | None = None,
        rho: float | Tensor = 0.0,
        order: int = 1,
    ) -> None:
        super().__init__(denoiser, steps, spacing=spacing, grid=grid)
        self.rho = _rho_schedule(rho, self.chain)
        self.order = order
        if order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {order}")
        if order == 2 and bool((self.rho > 0).any()):
            raise ValueError(
                f"order must be 1 where rho is above 0, got order = 2 and rho up to {float(self.rho.max()):g}"
            )

    def step(self, x_t: Tensor, eps: Tensor, v: Tensor | None, i: int, run: Run) -> Tensor:
        step = run.chain.step(i)
        if self.order == 2:
            return self._second_order(x_t, eps, i, step, run)
        rho = float(self.rho[i])
        alpha = self.process.alpha
        kept = (step.sigma_bar_previous**alpha - rho**alpha) ** (1.0 / alpha) if rho > 0 else step.sigma_bar_previous
        x = torch.add(x_t / step.gamma, eps, alpha=kept - step.sigma_bar / step.gamma)
        return x + rho * self.renewed_noise(x_t, run) if rho > 0 else x

    def last_step(self, x_t: Tensor, eps: Tensor, step: Step, run: Run) -> Tensor:
        if self.order == 2 and run.previous is not None:
            return self._second_order(x_t, eps, 1, step, run)
        return super().last_step(x_t, eps, step, run)

    def renewed_noise(self, x_t: Tensor, run: Run) -> Tensor:
        """SαS(1) noise of the shape of x_t."""
        return self.process.noise(x_t.shape, run.generator, self.process.noise_dtype(x_t.device), x_t.device)[0]

    def _second_order(self, x_t: Tensor, eps: Tensor, i: int, step: Step, run: Run) -> Tensor:
        x_0 = (x_t - step.sigma_bar * eps) / step.gamma_bar
        ahead = x_0
        if run.previous is not None:
            before, j = run.previous
            ahead = torch.lerp(x_0, before, -_extrapolation(run.chain, i, j, self.process.alpha))
        run.previous = (x_0, i)
        kept = step.sigma_bar_previous / step.sigma_bar
        return kept * x_t + (step.gamma_bar_previous - kept * step.gamma_bar) * ahead

    @torch.no_grad()
    def encode(self, x_0: Tensor, *, iterations: int = 50, tolerance: float | None = None, **cond: Any) -> Tensor:
        """The latents x_T that this sampler decodes to the data x_0: deterministic DLIM run forward.

        Each step is inverted by a fixed-point iteration, for the network sees the later end of the step: about five
        network calls a step. Order 2 encodes with order 1 and then corrects the latents until they decode to the data.

        Arguments:
            x_0: Data of shape (B, …).
            iterations: At most so many network calls a step (order 2: as many corrections).
            tolerance: The relative error to reach; a few times the denoiser's precision by default. A warning says
                how much was missed.
            cond: Handed to the denoiser.

        Returns:
            Latents of the shape and dtype of ``x_0``.
        """
        if bool((self.rho > 0).any()):
            raise ValueError(f"rho must be 0 to encode, got up to {float(self.rho.max()):g}")
        check_data("x_0", x_0)
        tolerance = 8 * torch.finfo(self.denoiser.dtype).eps if tolerance is None else tolerance
        x, cond = x_0.to(self.denoiser.device, self._state_dtype()), to_device(cond, self.denoiser.device)
        latents, missed = self._encode(x, iterations, tolerance, cond)
        if self.order == 2:
            first, missed = latents, math.inf
            for _ in range(iterations):
                decoded = self(x.shape, torch.Generator(), x_T=latents, dtype=x.dtype, **cond)
                missed = _relative(decoded - x, x)
                if missed < tolerance:
                    break
                latents = latents + first - self._encode(decoded, iterations, tolerance, cond)[0]
        if not bool(torch.isfinite(latents).all()):
            raise FloatingPointError(f"{type(self).__name__}.encode met a non-finite value: the denoiser returned one")
        if missed > tolerance:
            warnings.warn(
                f"{type(self).__name__}.encode: relative error {missed:.1e} after {iterations} iterations, above the "
                f"tolerance {tolerance:.1e}",
                RuntimeWarning,
                stacklevel=3,
            )
        return latents.to(x_0.dtype)

    def _encode(self, x: Tensor, iterations: int, tolerance: float, cond: dict[str, Any]) -> tuple[Tensor, float]:
        """First-order latents, and the largest relative error of a step."""
        worst = 0.0
        for i in range(1, self.chain.steps + 1):
            x, missed = self._inverse_step(x, i, iterations, tolerance, cond)
            worst = max(worst, missed)
        return x, worst

    def _inverse_step(
        self, x: Tensor, i: int, iterations: int, tolerance: float, cond: dict[str, Any]
    ) -> tuple[Tensor, float]:
        """x_i from x_{i-1}: solve x_i = γ x_{i-1} + (σ̄_i - γ σ̄_{i-1}) ε̂(x_i)."""
        step = self.chain.step(i)
        t = torch.tensor(step.t, dtype=x.dtype, device=x.device)
        base, weight = step.gamma * x, step.sigma_bar - step.gamma * step.sigma_bar_previous

        def right_hand_side(z: Tensor) -> Tensor:
            return torch.add(base, self.denoiser(z, t, **cond), alpha=weight)

        return _fixed_point(right_hand_side, x, iterations, tolerance)


class DDIM(DLIM):
    r"""Denoising Diffusion Implicit Model: DLIM at α = 2, where ρ is DDIM's η.

    Reference: Song, Meng & Ermon, *Denoising Diffusion Implicit Models*, 2021.

    Example:
        >>> from levydiff import LevyProcess, StableOracle
        >>> DDIM(StableOracle(LevyProcess(2.0)), steps=10, order=2)((5, 2)).shape
        torch.Size([5, 2])
    """

    def __init__(self, denoiser: Predictor, steps: int = 100, **options: Any) -> None:
        if denoiser.process.alpha != 2:
            raise ValueError(f"process.alpha must be 2 for DDIM, got {denoiser.process.alpha}")
        super().__init__(denoiser, steps, **options)


class CauchyDLIM(DLIM):
    r"""DLIM with α = 1 and independent components, whose noise is Cauchy and needs no A: ρ = 1 by default.

    .. math::  x_{t-1} = \frac{x_t - \barσ_t\hat ε}{γ_t} + (\barσ_{t-1} - ρ_t)\, \hat ε + ρ_t\, C,
               \quad C_i \sim \mathrm{Cauchy}.

    Train with :class:`~levydiff.kl.CauchyLoss` of the same ρ.

    Example:
        >>> from levydiff import LevyProcess, StableOracle
        >>> oracle = StableOracle(LevyProcess(1.0, isotropic=False))
        >>> CauchyDLIM(oracle, steps=10)((5, 2)).shape
        torch.Size([5, 2])
    """

    def __init__(self, denoiser: Predictor, steps: int = 100, *, rho: float | Tensor = 1.0, **options: Any) -> None:
        check_cauchy(denoiser.process, "CauchyDLIM")
        super().__init__(denoiser, steps, rho=rho, **options)

    def renewed_noise(self, x_t: Tensor, run: Run) -> Tensor:
        u, v = uniform_pair(x_t.shape, run.generator, torch.float32, x_t.device)
        # tan(π(u - 1/2)) = -cot(πu): u is finely resolved near 0 only, so a second uniform gives the sign.
        return torch.copysign(1.0 / torch.tan(u.mul_(math.pi / 2)), v - 0.5)


def _rho_schedule(rho: float | Tensor, chain: Chain) -> Tensor:
    """ρ_0 … ρ_T (ρ_0 = 0), float64 of shape (T + 1,)."""
    previous = torch.cat([chain.sigma_bar.new_zeros(1), chain.sigma_bar[:-1]])
    if isinstance(rho, Tensor):
        check_shape("rho", rho, (chain.steps,))
        values = torch.cat([previous.new_zeros(1), rho.to(previous)])
        if not bool(((values >= 0) & (values <= previous)).all()):
            raise ValueError(f"rho must lie in [0, sigma_bar of the time before], got {rho.tolist()}")
        return values
    if not 0 <= rho <= 1:
        raise ValueError(f"rho must lie in [0, 1], got {rho}")
    return rho * torch.cat([previous[:1], previous[1:] * chain.sigma[1:] / chain.sigma_bar[1:]])


def _extrapolation(chain: Chain, i: int, j: int, alpha: float) -> float:
    """c of the module's docstring, at step i after step j = i + 1."""
    now, before = (float(chain.sigma_bar[k] / chain.gamma_bar[k]) for k in (i, j))
    if i == 1:
        return 1.0 / (math.pow(before / now, alpha) - 1.0)
    following = float(chain.sigma_bar[i - 1] / chain.gamma_bar[i - 1])
    return math.log(now / following) / (2.0 * math.log(before / now))


def _relative(error: Tensor, x: Tensor) -> float:
    """The largest ‖error‖/(1 + ‖x‖) of a sample, per coordinate."""
    size = torch.linalg.vector_norm(x.flatten(1), dim=1) + math.sqrt(x[0].numel())
    return float((torch.linalg.vector_norm(error.flatten(1), dim=1) / size).max())


def _fixed_point(
    function: Callable[[Tensor], Tensor], z: Tensor, iterations: int, tolerance: float
) -> tuple[Tensor, float]:
    """z = function(z), each sample accelerated by the method of Irons & Tuck (Aitken's for vectors).

    A large step from noise to nearly pure noise contracts by a factor close to 1; the acceleration measures that
    factor on the way and divides it out.
    """
    missed = math.inf
    omega = z.new_ones(len(z), *[1] * (z.ndim - 1))
    before: Tensor | None = None
    smallest = torch.finfo(z.dtype).tiny
    for _ in range(iterations):
        residual = function(z) - z
        missed = _relative(residual, z)
        if missed < tolerance:
            break
        if before is not None:
            change = residual - before
            inner = (before * change).flatten(1).sum(1) / change.square().flatten(1).sum(1).clamp_min(smallest)
            omega = (-omega * inner.reshape(omega.shape)).clamp(0.1, 1e8)
        z = z + omega * residual
        before = residual
    return z, missed
