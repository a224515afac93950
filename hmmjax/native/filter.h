// Marginals of tools, and the filter.
#pragma once
#include "forward.h"
#include "wide.h"

namespace {

// Marginals of tools from those of joint states: sums over the configurations with each tool absent and present.
class ToolSums {
 public:
  explicit ToolSums(const Model& model)
      : m(model), left(m.C >> m.block), high(left * m.Lp), low((m.Lp << m.block)), sums(2 * m.K * m.Lp + W), values(2 * m.K + 1) {}

  // Of rows (C, Lp).
  void add_up(const double* rows) {
    with_block(m, [&](auto block, auto phases) __attribute__((always_inline)) {
      constexpr int N = 1 << decltype(block)::value;
      const long Lp = decltype(phases)::value ? decltype(phases)::value : m.Lp;
      for (long o = 0; o < Lp; o += W) {
        V totals[N] = {};
        for (long c = 0; c < m.C; c += N) {
          V own[N];
#pragma GCC unroll 8
          for (int i = 0; i < N; ++i) own[i] = load(rows + (c + i) * Lp + o);
          add_block<N>(own, totals, high, c, Lp, o);
        }
        for (int i = 0; i < N; ++i) store(low + i * Lp + o, totals[i]);
      }
    });
  }

  // Writes marginals of frame t from the sums in high and low, which it overwrites.
  void write(const double* weights, const Out& out, int64_t t) {
    sum_tools(high, low, sums, left, 1 << m.block, m.Lp);
    write_sums(weights, out, t);
  }

  // Writes marginals of frame t from the sums of each tool's states.
  void write_sums(const double* weights, const Out& out, int64_t t) {
    weigh(sums, weights, values, 2 * m.K, m.Lp);
    for (long k = 0; k < 2 * m.K; ++k) put(out, t * 2 * m.K + k, values[k]);
  }

  const Model& m;
  long left;
  Buffer high, low, sums, values;
};

// Writes x[i] * y[i] for i < n; both are padded to vectors.
INLINE void put_product(const Out& out, int64_t first, const double* x, const double* y, long n) {
  for (long i = 0; i < n; i += W) put(out, first + i, n - i < W ? n - i : W, load(x + i) * load(y + i));
}

// Writes a frame's marginals from its message, of which the sum is returned.
Total write_filtered(const Message& now, ToolSums& tools, Relative& relative, double* weights, const Marginals& out, int64_t t) {
  const Model& m = tools.m;
  const Total total(relative, now.scale, now.totals, weights, m.Lp);
  if (total.value == 0) return total;
  put_product(out.phases, t * m.L, now.totals, weights, m.L);
  if (m.K) {
    tools.add_up(now.rows);
    tools.write(weights, out.tools, t);
  }
  return total;
}

double filter(const void* model, const Video& v, const Marginals& out) {
  const Model& m = *static_cast<const Model*>(model);
  if (v.length <= 0) return 0;
  if (!m.is_safe || starts_far(m, v)) return WideVideo(m, v).filter(out);
  Steps steps(m, v);
  ToolSums tools(m);
  Relative relative(m.Lp);
  Buffer weights(m.Lp);
  return forward(steps, [&](int64_t t, const Message&, const Message& now) {
    if (write_filtered(now, tools, relative, weights, out, t).value > 0) return true;
    for (int64_t i = 0; i < t * m.L; ++i) put(out.phases, i, 0);
    for (int64_t i = 0; i < t * m.K * 2; ++i) put(out.tools, i, 0);
    return false;
  });
}

}  // namespace
