r"""The density of the one-dimensional symmetric α-stable law, by quadrature.

The law with characteristic function :math:`e^{-|u|^α}` has no closed density but at α = 1 (Cauchy) and α = 2
(Gaussian). Zolotarev's integral (Nolan, *Numerical calculation of stable densities*, 1997, with β = 0) has neither
oscillation nor cancellation. For x > 0, α ≠ 1:

.. math::
    f(x) = \frac{α}{π |α-1| x} \int_0^{π/2} g e^{-g} \, dθ, \qquad
    \log g = \frac{α}{α-1} \log\frac{x \cos θ}{\sin αθ} + \log\frac{\cos((α-1)θ)}{\cos θ}.

g runs monotonically through all of (0, ∞). With :math:`θ = (π/2)\,\mathrm{sigmoid}(z)` and :math:`w = \log g`, the
integrand :math:`e^{w - e^w} θ'(z)` varies on the scale of 1 in w and in z; so it is smooth in :math:`p = z ± w` (the
sign that makes w rise with z), where the trapezoidal rule converges exponentially: ten digits and more, from the
centre to the far tail. The nodes z(p) are found without gradients and the integrand is evaluated on them with
gradients, so that the density can be differentiated in x and in α.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

_NODES = 320
_W_RANGE = (-60.0, 4.5)  # e^{w - e^w} leaves less than 1e-12 of the integral outside
_CHUNK = 512  # points at a time, to bound the memory of points × nodes
_FAR = 1e30
_NEAR_CAUCHY = 1e-6  # within this distance of α = 1, where the integral degenerates, the density is the Cauchy's


def symmetric_stable_log_density(x: Tensor, alpha: Tensor) -> Tensor:
    """log f(x) for the law with characteristic function exp(-|u|^α), at every x of any shape.

    Arguments:
        x: Where to evaluate, any shape.
        alpha: The stability index, in (0, 2], a scalar tensor.

    Returns:
        The log-density, of the shape and dtype of ``x``; differentiable in ``x`` and in ``alpha``.

    Example:
        >>> x = torch.tensor([0.0, 1.0], dtype=torch.float64)
        >>> symmetric_stable_log_density(x, torch.tensor(1.0)).exp() * torch.pi  # 1/(1 + x²)
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    if x.device.type == "mps":  # which has no float64
        return symmetric_stable_log_density(x.cpu(), alpha.cpu()).to(x)
    a = float(alpha.detach())
    z = x.to(torch.float64)
    if a == 2.0 or abs(a - 1.0) < _NEAR_CAUCHY:
        closed = -0.5 * math.log(4.0 * math.pi) - z.square() / 4.0
        if a != 2.0:
            closed = -math.log(math.pi) - torch.log1p(z.square())
        if alpha.requires_grad:  # the closed forms have no derivative in α: take a neighbour's
            a = 2.0 - 1e-5 if a == 2.0 else 1.0 + 1e-5
            neighbour = symmetric_stable_log_density(z.detach(), alpha.to(torch.float64) + (a - alpha).detach())
            closed = closed + (neighbour - neighbour.detach())
        return closed.to(x.dtype)
    alpha = alpha.to(torch.float64)
    # f is even and flat at 0: below this x the value is f(0) to the last digit of a float64, for α > 0.5.
    radius = z.abs().clamp_min(1e-9 if a > 0.5 else 1e-15)
    near = radius.clamp_max(_FAR)
    parts = [_log_density(chunk, alpha) for chunk in near.flatten().split(_CHUNK)]
    beyond = (1.0 + alpha) * (radius.log() - near.log())  # the tail is the power law x^{-1-α}
    return (torch.cat(parts).reshape(x.shape) - beyond).to(x.dtype)


def _log_density(radius: Tensor, alpha: Tensor) -> Tensor:
    """Zolotarev's integral at each radius > 0, shape (N,)."""
    shift = alpha / (alpha - 1.0) * radius.log()  # w = shift + v(z)
    with torch.no_grad():
        z, weight = _nodes(shift, alpha)
    w = shift + _log_g(z, alpha)
    log_terms = w - w.exp() + logsigmoid(z) + logsigmoid(-z) + weight.log()  # θ'(z) = (π/2) sigmoid(z) sigmoid(-z)
    integral = torch.logsumexp(log_terms, dim=0) + math.log(math.pi / 2)
    return integral + (alpha / (math.pi * (alpha - 1.0).abs())).log() - radius.log()


def _log_g(z: Tensor, alpha: Tensor) -> Tensor:
    """v(z) = log g at x = 1, accurate at both ends of θ = (π/2) sigmoid(z) in (0, π/2)."""
    theta, delta = (math.pi / 2) * torch.sigmoid(z), (math.pi / 2) * torch.sigmoid(-z)  # θ and π/2 - θ
    log_cos = torch.log(torch.sin(delta))
    # sin(αθ) = sin(π - αθ): the second form keeps its digits where αθ is near π.
    angle = torch.where(alpha * theta < math.pi / 2, alpha * theta, math.pi * (1 - alpha / 2) + alpha * delta)
    log_sin = torch.log(torch.sin(angle))
    return alpha / (alpha - 1.0) * (log_cos - log_sin) + torch.log(torch.cos((alpha - 1.0) * theta)) - log_cos


def _slope(z: Tensor, alpha: Tensor) -> Tensor:
    """dv/dz."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        (slope,) = torch.autograd.grad(_log_g(z, alpha.detach()).sum(), z)
    return slope


def _nodes(shift: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes z and weights dz, shape (nodes, N), with p = z + sign·v(z) equally spaced at each of the N points."""
    sign = 1.0 if alpha < 1 else -1.0  # v rises with z for α < 1 and falls for α > 1
    table_z = torch.linspace(-300.0, 300.0, 24001, dtype=torch.float64, device=shift.device)
    table_v = sign * _log_g(table_z, alpha)
    table_p = table_z + table_v
    ends = torch.stack([sign * (w - shift) for w in _W_RANGE[:: int(sign)]])
    p_low, p_high = _interpolate(ends, table_v, table_p)
    steps = torch.linspace(0.0, 1.0, _NODES, dtype=torch.float64, device=shift.device)[:, None]
    p = p_low + (p_high - p_low) * steps
    z = _interpolate(p, table_p, table_z)
    for _ in range(3):  # Newton's method, from the table's first guess
        z = z - (z + sign * _log_g(z, alpha) - p) / (1.0 + sign * _slope(z, alpha))
    return z, (p_high - p_low) / (_NODES - 1) / (1.0 + sign * _slope(z, alpha))


def _interpolate(at: Tensor, rising: Tensor, values: Tensor) -> Tensor:
    """Piecewise linear interpolation of ``values`` over the rising abscissae, constant beyond them."""
    right = torch.searchsorted(rising, at.contiguous()).clamp(1, len(rising) - 1)
    left = right - 1
    share = ((at - rising[left]) / (rising[right] - rising[left])).clamp(0.0, 1.0)
    return torch.lerp(values[left], values[right], share)
