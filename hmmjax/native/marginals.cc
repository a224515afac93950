// Derivatives of marginals, smoothed or filtered, of chains of phases alone: what training for single labels needs.
//
// Messages are plain doubles that sum to one, with likelihoods relative to the best phase of their frame. A phase less
// probable than LOST given the past counts as impossible from there on.
#include <cmath>
#include <cstring>
#include <vector>

#include "loop.h"

namespace hmmjax {
namespace {

constexpr double LOST = 1e-200;

std::vector<double> read(const Buffer& x, int64_t from, int64_t size) {
  std::vector<double> y(size);
  if (x.element_type() == ffi::DataType::F64)
    std::memcpy(y.data(), static_cast<const double*>(x.untyped_data()) + from, size * sizeof(double));
  else
    for (int64_t i = 0; i < size; ++i) y[i] = static_cast<const float*>(x.untyped_data())[from + i];
  return y;
}

void write(Result& x, int64_t from, const std::vector<double>& y) {
  if (x->element_type() == ffi::DataType::F64)
    std::memcpy(static_cast<double*>(x->untyped_data()) + from, y.data(), y.size() * sizeof(double));
  else
    for (size_t i = 0; i < y.size(); ++i)
      static_cast<float*>(x->untyped_data())[from + i] = static_cast<float>(y[i]);
}

// One video of T frames under a chain of L phases: initial (L,), transition (L, L), log-likelihoods (T, L).
struct Chain {
  int64_t L, T;
  std::vector<double> initial, transition, phases;
};

// Derivatives of a scalar in the shapes of a chain's tables.
struct Derivatives {
  explicit Derivatives(int64_t L, int64_t frames) : initial(L), transition(L * L), phases(frames * L) {}
  std::vector<double> initial, transition, phases;
};

// Filtered marginals f (T, L), and w (T, L): f[t] = w[t] * the prediction of frame t. False if the video is impossible.
class Forward {
 public:
  explicit Forward(const Chain& chain) : f(chain.T * chain.L), w(chain.T * chain.L), c(chain) {}

  bool run() {
    for (int64_t t = 0; t < c.T; ++t)
      if (!step(t)) return false;
    return true;
  }

  std::vector<double> f, w;

 private:
  bool step(int64_t t) {
    const int64_t L = c.L;
    const double* phases = &c.phases[t * L];
    double* now = &f[t * L];
    double* weights = &w[t * L];
    double top = -INFINITY, total = 0;
    for (int64_t q = 0; q < L; ++q) top = std::max(top, phases[q]);
    if (top == -INFINITY) return false;
    for (int64_t q = 0; q < L; ++q) {
      double prediction = t ? 0 : c.initial[q];
      for (int64_t p = 0; t && p < L; ++p) prediction += f[(t - 1) * L + p] * c.transition[p * L + q];
      weights[q] = prediction > LOST ? std::exp(phases[q] - top) : 0;
      now[q] = prediction * weights[q];
      if (now[q] < LOST) now[q] = weights[q] = 0;
      total += now[q];
    }
    if (!(total > 0)) return false;
    for (int64_t q = 0; q < L; ++q) now[q] /= total, weights[q] /= total;
    return true;
  }

  const Chain& c;
};

// The gradient of sum(v * smoothed marginals). These are derivatives of the log-normalizer in log-likelihoods, and second
// derivatives are symmetric: it is how the derivatives in all tables change as log-likelihoods move in the direction v.
// Tangents of forward and backward messages are g and h.
void differentiate_smoothed(const Chain& c, const std::vector<double>& v, Derivatives& out) {
  const int64_t L = c.L;
  Forward forward(c);
  if (c.T <= 0 || !forward.run()) return;
  const std::vector<double>&f = forward.f, &w = forward.w;
  std::vector<double> g(c.T * L), b(L, 1.0), h(L, 0.0), x(L), y(L);
  for (int64_t t = 0; t < c.T; ++t)
    for (int64_t q = 0; q < L; ++q) {
      double moved = 0;
      for (int64_t p = 0; t && p < L; ++p) moved += g[(t - 1) * L + p] * c.transition[p * L + q];
      g[t * L + q] = moved * w[t * L + q] + f[t * L + q] * v[t * L + q];
    }
  double z = 0;  // of the log-normalizer
  for (int64_t q = 0; q < L; ++q) z += g[(c.T - 1) * L + q];
  for (int64_t t = c.T - 1; t >= 0; --t) {
    const int64_t at = t * L;
    for (int64_t q = 0; q < L; ++q) {
      if (f[at + q] == 0) b[q] = h[q] = 0;
      out.phases[at + q] = g[at + q] * b[q] + f[at + q] * (h[q] - z * b[q]);
      x[q] = w[at + q] * b[q], y[q] = w[at + q] * (v[at + q] * b[q] + h[q]);
      if (t == 0) out.initial[q] = y[q] - z * x[q];
    }
    if (t == 0) return;
    for (int64_t p = 0; p < L; ++p) {
      double back = 0, tangent = 0;
      for (int64_t q = 0; q < L; ++q) {
        out.transition[p * L + q] += g[at - L + p] * x[q] + f[at - L + p] * (y[q] - z * x[q]);
        back += c.transition[p * L + q] * x[q], tangent += c.transition[p * L + q] * y[q];
      }
      b[p] = back, h[p] = tangent;
    }
  }
}

// The gradient of sum(v * filtered marginals), by the adjoint of the forward recursion.
void differentiate_filtered(const Chain& c, const std::vector<double>& v, Derivatives& out) {
  const int64_t L = c.L;
  Forward forward(c);
  if (c.T <= 0 || !forward.run()) return;
  const std::vector<double>&f = forward.f, &w = forward.w;
  std::vector<double> adjoint(L, 0.0), u(L);
  for (int64_t t = c.T - 1; t >= 0; --t) {
    const int64_t at = t * L;
    double mean = 0;
    for (int64_t q = 0; q < L; ++q) adjoint[q] += v[at + q], mean += adjoint[q] * f[at + q];
    for (int64_t q = 0; q < L; ++q) {
      out.phases[at + q] = f[at + q] * (adjoint[q] - mean);
      u[q] = w[at + q] * (adjoint[q] - mean);
    }
    if (t == 0) {
      out.initial = u;
      return;
    }
    for (int64_t p = 0; p < L; ++p) {
      adjoint[p] = 0;
      for (int64_t q = 0; q < L; ++q) {
        out.transition[p * L + q] += f[at - L + p] * u[q];
        adjoint[p] += c.transition[p * L + q] * u[q];
      }
    }
  }
}

using Differentiate = void(const Chain&, const std::vector<double>&, Derivatives&);

// Writes the gradient of every video, in the shapes of the tables with a leading axis of videos.
template <Differentiate* differentiate>
ffi::Error for_each_video(ffi::ThreadPool pool, Buffer initial, Buffer transition, Buffer phases, Buffer lengths,
                          Buffer v, Result d_initial, Result d_transition, Result d_phases) {
  const int64_t L = phases.dimensions()[2], frames = phases.dimensions()[1];
  Loop::run(pool, phases.dimensions()[0], [&](int64_t i) {
    const int64_t T = std::clamp<int64_t>(lengths.typed_data<int32_t>()[i], 0, frames), at = i * frames * L;
    const Chain chain{L, T, read(initial, 0, L), read(transition, 0, L * L), read(phases, at, T * L)};
    Derivatives out(L, frames);
    differentiate(chain, read(v, at, T * L), out);
    write(d_initial, i * L, out.initial), write(d_transition, i * L * L, out.transition);
    write(d_phases, at, out.phases);
  });
  return ffi::Error::Success();
}

auto operands() { return with_arrays<5, 3>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>()); }

}  // namespace
}  // namespace hmmjax

#pragma GCC visibility push(default)

XLA_FFI_DEFINE_HANDLER_SYMBOL(hmmjax_smoother_vjp, hmmjax::for_each_video<hmmjax::differentiate_smoothed>, hmmjax::operands());
XLA_FFI_DEFINE_HANDLER_SYMBOL(hmmjax_filter_vjp, hmmjax::for_each_video<hmmjax::differentiate_filtered>, hmmjax::operands());

#pragma GCC visibility pop
