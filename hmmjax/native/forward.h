// The forward recursion over one video.
#pragma once
#include "messages.h"

namespace {

// The steps of one video's forward recursion, and buffers for them.
class Steps {
 public:
  Steps(const Model& model, const Video& video)
      : transition(model, false), m(model), v(video), weights(m.L * m.Lp), spare(m.rows), tool_factors(2 * m.K + W) {}

  // Loads frame t's likelihoods; returns the logarithm of the factor that was removed from them.
  double load_frame(int64_t t, const Frame& out);
  // Message of frame 0.
  void first(const Frame& frame, const Message& out);
  // Message of a frame from that of the frame before. If u is given, keeps there the prediction before the tools move,
  // times the likelihoods of phases; its powers are transition.reference.
  void next(const Frame& frame, const Message& before, const Message& out, double* u);
  // Brings column sums back into range.
  void rescale(const Message& x);

  Scaled transition;
  const Model& m;
  const Video& v;

 private:
  void load_joint(int64_t t, const Frame& out, double& removed);
  void load_tools(int64_t t, const Frame& out, double& removed);
  // The products with the phases' transition and, if they are neighbors, with the least significant tools'.
  void mix_block(const Frame& frame, const Message& before, const Message& out, double* u);
  void finish_last(const double* x, const Frame& frame, const Message& out);

  Buffer weights, spare, tool_factors;
  const bool fused_ = m.is_fused();
};

double Steps::load_frame(int64_t t, const Frame& out) {
  double removed = 0;
  for (long o = 0; o < m.Lp; o += W) {
    const V given = get(v.phases, t * m.L + o, m.L - o < W ? m.L - o : W);
    const V x = select(load(m.inside + o) != V{}, given, fill(-INFINITY));
    // Most phases need no power of their own.
    const V scale = round_to_integer(select(x > fill(-INFINITY), x, V{}) * fill(1 / (LN2 * QUANTUM))) * fill(QUANTUM);
    store(out.scale + o, scale);
    store(out.phases + o, exponential((x - scale * fill(LN2_HIGH)) - scale * fill(LN2_LOW)));
  }
  if (v.configs.data)
    load_joint(t, out, removed);
  else if (v.tools.data)
    load_tools(t, out, removed);
  else
    for (long c = 0; c < m.C; ++c) out.configs[c] = 1;
  return removed;
}

void Steps::load_tools(int64_t t, const Frame& out, double& removed) {
  const long n = 2 * m.K;
  V tops = {};
  for (long k = 0; k < n; k += W) {
    const V x = get(v.tools, t * n + k, n - k < W ? n - k : W), best = maximum(x, swap_pairs(x)), top = select(best > fill(-INFINITY), best, V{});
    tops += top;
    store(tool_factors + k, exponential(x - top));
  }
  removed += sum(tops) / 2;  // each is there twice
  double* configs = out.configs;
  configs[0] = 1;
  long size = 1;
  for (long k = m.K - 1; k >= 0; --k, size *= 2) {
    const double absent = tool_factors[2 * k], present = tool_factors[2 * k + 1];
    long c = 0;
    for (; c + W <= size; c += W) {
      const V x = load(configs + c);
      store(configs + size + c, x * fill(present)), store(configs + c, x * fill(absent));
    }
    for (; c < size; ++c) configs[size + c] = configs[c] * present, configs[c] *= absent;
  }
}

// Adds up logarithms first: the best configuration is the best of the sums.
void Steps::load_joint(int64_t t, const Frame& out, double& removed) {
  double* logs = out.configs;
  for (long c = 0; c < m.C; ++c) logs[c] = get(v.configs, t * m.C + c);
  if (v.tools.data)
    for (long k = 0; k < m.K; ++k)
      for (long c = 0; c < m.C; ++c) logs[c] += get(v.tools, (t * m.K + k) * 2 + ((c >> (m.K - 1 - k)) & 1));
  double top = -INFINITY;
  for (long c = 0; c < m.C; ++c) top = logs[c] > top || logs[c] != logs[c] ? logs[c] : top;
  removed += top = top == -INFINITY ? 0 : top;
  for (long c = m.C; c % W; ++c) logs[c] = 0;
  for (long c = 0; c < m.C; c += W) store(logs + c, exponential(load(logs + c) - fill(top)));
}

void Steps::first(const Frame& frame, const Message& out) {
  for (long o = 0; o < m.Lp; o += W) {
    V total = {};
    for (long c = 0; c < m.C; ++c) {
      const V y = load(m.initial + c * m.Lp + o) * (load(frame.phases + o) * fill(frame.configs[c]));
      store(out.rows + c * m.Lp + o, y);
      total += y;
    }
    store(out.totals + o, total);
    store(out.scale + o, load(frame.scale + o));
  }
  rescale(out);
}

void Steps::next(const Frame& frame, const Message& before, const Message& out, double* u) {
  const long Lp = m.Lp;
  transition.load_for(before.scale);
  for (long p = 0; m.C > 1 && p < m.L; ++p)
    for (long o = 0; o < Lp; o += W)
      store(weights + p * Lp + o, load(transition.table + p * Lp + o) * load(frame.phases + o));
  mix_block(frame, before, out, u);
  const int n = m.steps.size, begin = fused_;
  const double* x = out.rows;
  for (int i = begin; i + 1 < n; ++i) {
    const Group& g = m.steps.groups[i];
    double* to = g.dense && x == out.rows ? spare.get() : out.rows;
    push_group(x, to, g, false, Lp);
    x = to;
  }
  if (begin < n) finish_last(x, frame, out);
  for (long o = 0; o < Lp; o += W) store(out.scale + o, load(transition.reference + o) + load(frame.scale + o));
  rescale(out);
}

void Steps::mix_block(const Frame& frame, const Message& before, const Message& out, double* u) {
  const Group& g = m.steps.groups[0];
  const bool is_last = m.steps.size <= fused_;
  with_block(m, [&](auto block, auto phases) __attribute__((always_inline)) {
    constexpr int R = decltype(block)::value, N = 1 << R;
    const long Lp = decltype(phases)::value ? decltype(phases)::value : m.Lp, L = m.L, C = m.C;
    const double *table = R ? weights : transition.table, *diagonal = m.diagonal, *configs = frame.configs, *from = before.rows;
    double* to = out.rows;
    const bool fused = fused_;
    for (long o = 0; o < Lp; o += W) {
      const Pairs<R> pairs(fused ? g.ratios : m.ratios.get(), false, Lp, o);
      V total = {};
      for (long c = 0; c < C; c += N) {
        V rows[N];
        mix<N>(from, table, rows, c, L, Lp, o);
        // Of a single configuration, that is less than to multiply the table.
        if (!R) rows[0] *= load(frame.phases + o);
        if (u)
#pragma GCC unroll 8
          for (int i = 0; i < N; ++i) store(u + (c + i) * Lp + o, rows[i]);
        if (fused) pairs.push(rows);
        if (is_last)
#pragma GCC unroll 8
          for (int i = 0; i < N; ++i)
            total += rows[i] *= load(diagonal + (c + i) * Lp + o) * fill(configs[c + i]);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) store(to + (c + i) * Lp + o, rows[i]);
      }
      if (is_last) store(out.totals + o, total);
    }
  });
}

// The products with the last group of tools are multiplied by the frame's likelihoods at once.
void Steps::finish_last(const double* x, const Frame& frame, const Message& out) {
  const long Lp = m.Lp;
  const Group& g = m.steps.groups[m.steps.size - 1];
  if (g.dense && x == out.rows) {
    copy(spare, x, m.rows);
    x = spare;
  }
  const double *diagonal = m.diagonal, *configs = frame.configs;
  for (long o = 0; o < Lp; o += W) {
    V total = {};
    push_group(x, out.rows, g, false, Lp, o, [&total, diagonal, configs, Lp, o](V y, long c) __attribute__((always_inline)) {
      y *= load(diagonal + c * Lp + o) * fill(configs[c]);
      total += y;
      return y;
    });
    store(out.totals + o, total);
  }
}

void Steps::rescale(const Message& x) {
  I outside = {};
  for (long o = 0; o < m.Lp; o += W) {
    const V total = load(x.totals + o);
    outside |= ~((total >= fill(LOWEST)) & (total <= fill(HIGHEST))) & (load(m.inside + o) != V{});
  }
  if (any(outside))
    for (long q = 0; q < m.L; ++q) {
      const double total = x.totals[q];
      if (!(total > 0) || (total >= LOWEST && total <= HIGHEST) || total > 1e300) continue;
      // The smallest positive totals need a factor that a double cannot hold; this brings them into range too.
      const double exponent = QUANTUM * rint(logb(total) / QUANTUM), shift = exponent < -896 ? -896 : exponent;
      const double factor = ldexp(1.0, -static_cast<int>(shift));
      for (long c = 0; c < m.C; ++c) x.rows[c * m.Lp + q] *= factor;
      x.totals[q] *= factor;
      x.scale[q] += shift;
    }
  level(x.scale, m, [&x](long o) { return load(x.totals + o) > V{}; });
}

// The forward pass over all frames: calls visit(t, message of frame t before, message of frame t); stops if it returns
// false. Returns the log-normalizer.
template <class Visit>
INLINE double forward(Steps& steps, Visit visit) {
  const Model& m = steps.m;
  Buffer buffers(2 * Message::size(m)), likelihoods(Frame::size(m)), weights(m.Lp);
  const Frame frame(likelihoods, m);
  Message now(buffers, m), then(buffers + Message::size(m), m);
  double removed = 0;
  for (int64_t t = 0; t < steps.v.length; ++t) {
    removed += steps.load_frame(t, frame);
    if (t == 0)
      steps.first(frame, now);
    else
      steps.next(frame, then, now, nullptr);
    if (!visit(t, then, now)) return -INFINITY;
    const Message swap = now;
    now = then, then = swap;
  }
  Relative relative(m.Lp);
  return removed + Total(relative, then.scale, then.totals, weights, m.Lp).log();
}

}  // namespace
