// The most probable path of one video. Scores are logarithms, in doubles; products of `products.h` become sums, and sums
// become maxima.
#pragma once
#include "forward.h"

namespace {

// max_p x[c][p] + logs[p][q] of the N configurations from c, for the phases q at o.
template <int N>
INLINE void mix_max(const double* x, const double* logs, V* rows, long c, long L, long Lp, long o) {
  for (int i = 0; i < N; ++i) rows[i] = fill(x[(c + i) * Lp]) + load(logs + o);
  for (long p = 1; p < L; ++p) {
    const V entry = load(logs + p * Lp + o);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) rows[i] = maximum(rows[i], fill(x[(c + i) * Lp + p]) + entry);
  }
}

// As `Pairs`, of logarithms of ratios.
template <int R>
struct MaxPairs {
  V down[R ? R : 1], up[R ? R : 1];

  MaxPairs(const double* ratios, long Lp, long o) {
    for (int k = 0; k < R; ++k) down[k] = load(ratios + 2 * k * Lp + o), up[k] = load(ratios + (2 * k + 1) * Lp + o);
  }

  INLINE void push(V* rows) const {
#pragma GCC unroll 4
    for (int k = 0; k < R; ++k) {
      const int step = 1 << (R - 1 - k);
#pragma GCC unroll 16
      for (int i = 0; i < (1 << R); ++i)
        if (!(i & step)) {
          const V absent = rows[i], present = rows[i + step];
          rows[i] = maximum(absent, present + down[k]);
          rows[i + step] = maximum(present, absent + up[k]);
        }
    }
  }
};

template <int R, int RIGHT, class Finish>
INLINE void push_max_pairs(const double* x, double* y, const double* ratios, const Group& g, long Lp, long o,
                           Finish finish) {
  push_sets<R, RIGHT>(x, y, MaxPairs<R>(ratios, RIGHT ? W : Lp, o), g, Lp, o, finish);
}

template <class Finish>
INLINE void push_max_dense(const double* x, double* y, const double* logs, const Group& g, long Lp, long o, Finish finish) {
  for_each_set(g, g.n, [&](long c) {
    for (long j = 0; j < g.n; ++j) {
      V best = load(x + c * Lp + o) + load(logs + j * Lp + o);
      for (long i = 1; i < g.n; ++i)
        best = maximum(best, load(x + (c + i * g.right) * Lp + o) + load(logs + (i * g.n + j) * Lp + o));
      store(y + (c + j * g.right) * Lp + o, finish(best, c + j * g.right));
    }
  });
}

class BestPath {
 public:
  BestPath(const Model& model, const Video& video)
      : m(model), v(video), configs(m.C), phases(m.Lp), table(m.L * m.Lp), spare(m.rows), column(m.C), tools(m.C) {
    for (long q = 0; q < m.L; ++q)
      for (long p = 0; p < m.Lp; ++p) column_of_[q * m.Lp + p] = p < m.L ? m.log_transition[p * m.Lp + q] : -INFINITY;
  }

  double run(int32_t* path_phases, int32_t* path_configs);

 private:
  void load_frame(int64_t t);
  // Scores of frame 0.
  void first(double* score);
  // Scores of frame t from those of the frame before.
  void next(int64_t t, const double* before, double* score);
  void push_group(const double* x, double* y, int group);
  // Logarithms of the probability that each configuration is followed by (q, c), in column.
  void fill_column(long q, long c);
  // The best state of the frame before, from its scores.
  void step_back(const double* score, long& q, long& c);

  const Model& m;
  const Video& v;
  Buffer configs, phases, table, spare, column, tools;
  Buffer column_of_{m.L * m.Lp};  // the transition to each phase q, over the phases before (L, Lp)
  const bool fused_ = m.is_fused();
};

void BestPath::load_frame(int64_t t) {
  for (long q = 0; q < m.L; ++q) phases[q] = get(v.phases, t * m.L + q);
  for (long q = m.L; q < m.Lp; ++q) phases[q] = -INFINITY;
  for (long c = 0; c < m.C; ++c) configs[c] = v.configs.data ? get(v.configs, t * m.C + c) : 0;
  if (!v.tools.data) return;
  tools[0] = 0;
  long size = 1;
  for (long k = m.K - 1; k >= 0; --k, size *= 2) {
    const double absent = get(v.tools, (t * m.K + k) * 2), present = get(v.tools, (t * m.K + k) * 2 + 1);
    for (long c = 0; c < size; ++c) tools[size + c] = tools[c] + present, tools[c] += absent;
  }
  for (long c = 0; c < m.C; ++c) configs[c] += tools[c];
}

void BestPath::first(double* score) {
  load_frame(0);
  for (long o = 0; o < m.Lp; o += W)
    for (long c = 0; c < m.C; ++c)
      store(score + c * m.Lp + o, load(m.log_initial + c * m.Lp + o) + (load(phases + o) + fill(configs[c])));
}

void BestPath::next(int64_t t, const double* before, double* score) {
  load_frame(t);
  for (long p = 0; p < m.L; ++p)
    for (long o = 0; o < m.Lp; o += W)
      store(table + p * m.Lp + o, load(m.log_transition + p * m.Lp + o) + load(phases + o));
  const int n = m.steps.size;
  with_block(m, [&](auto block, auto width) __attribute__((always_inline)) {
    constexpr int R = decltype(block)::value, N = 1 << R;
    const long Lp = decltype(width)::value ? decltype(width)::value : m.Lp, L = m.L, C = m.C;
    const double *logs = table, *diagonal = m.log_diagonal, *factors = configs;
    const bool fused = fused_, is_last = n <= fused_;
    for (long o = 0; o < Lp; o += W) {
      const MaxPairs<R> pairs(m.log_ratios + (fused_ ? m.steps.groups[0].ratios - m.ratios : 0), Lp, o);
      for (long c = 0; c < C; c += N) {
        V rows[N];
        mix_max<N>(before, logs, rows, c, L, Lp, o);
        if (fused) pairs.push(rows);
        if (is_last)
#pragma GCC unroll 8
          for (int i = 0; i < N; ++i) rows[i] += load(diagonal + (c + i) * Lp + o) + fill(factors[c + i]);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) store(score + (c + i) * Lp + o, rows[i]);
      }
    }
  });
  for (int i = fused_; i < n; ++i) {
    if (m.steps.groups[i].dense) copy(spare, score, m.rows);
    push_group(m.steps.groups[i].dense ? spare.get() : score, score, i);
  }
}

void BestPath::push_group(const double* x, double* y, int group) {
  const Group& g = m.steps.groups[group];
  const double *ratios = m.log_ratios + (g.ratios - m.ratios), *diagonal = m.log_diagonal, *factors = configs;
  const long Lp = m.Lp;
  const auto push = [&](long o, auto finish) __attribute__((always_inline)) {
    if (g.dense)
      push_max_dense(x, y, m.log_forward + g.offset, g, m.Lp, o, finish);
    else
      with_layout(g, m.Lp, [&](auto R, auto right) __attribute__((always_inline)) {
        push_max_pairs<decltype(R)::value, decltype(right)::value>(x, y, ratios, g, m.Lp, o, finish);
      });
  };
  for (long o = 0; o < m.Lp; o += W)
    if (group + 1 < m.steps.size)
      push(o, [](V row, long) __attribute__((always_inline)) { return row; });
    else
      push(o, [=](V row, long c) __attribute__((always_inline)) {
        return row + (load(diagonal + c * Lp + o) + fill(factors[c]));
      });
}

void BestPath::fill_column(long q, long c) {
  column[0] = 0;
  long size = 1;
  for (int i = 0; i < m.steps.size; ++i) {
    const Group& g = m.steps.groups[i];
    const long n = g.n;
    for (int k = g.R - 1; k >= 0; --k, size *= n) {
      const long own = c / size % n;
      const double* block = m.log_forward + g.offset + k * n * n * m.Lp;
      for (long j = n - 1; j >= 0; --j) {
        const double x = block[(j * n + own) * m.Lp + q];
        double *from = column, *to = column + j * size;
        long s = 0;
        for (; s + W <= size; s += W) store(to + s, load(from + s) + fill(x));
        for (; s < size; ++s) to[s] = from[s] + x;
      }
    }
  }
}

void BestPath::step_back(const double* score, long& q, long& c) {
  fill_column(q, c);
  const double *into = column_of_ + q * m.Lp, *columns = column;
  const long C = m.C, Lp = m.Lp, N = C < 4 ? 1 : 4;  // so many maxima at once, to wait for none
  double top = -INFINITY;
  for (long o = 0; o < Lp; o += W) {
    const V from = load(into + o);
    V best[4], at[4] = {};
    for (V& x : best) x = fill(-INFINITY);
    const auto compare = [&](long j, int i) __attribute__((always_inline)) {
      const V x = load(score + j * Lp + o) + (from + fill(columns[j]));
      const I better = x > best[i];
      best[i] = maximum(best[i], x), at[i] = select(better, fill(static_cast<double>(j)), at[i]);
    };
    if (N == 1)
      for (long j = 0; j < C; ++j) compare(j, 0);
    else
      for (long j = 0; j < C; j += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) compare(j + i, i);
    for (int k = 0; k < N; ++k)
      for (int i = 0; i < W; ++i)
        if (best[k][i] > top) top = best[k][i], q = o + i, c = static_cast<long>(at[k][i]);
  }
}

double BestPath::run(int32_t* path_phases, int32_t* path_configs) {
  const int64_t length = v.length;
  if (length <= 0) return 0;
  const long L = m.L, Lp = m.Lp, rows = m.rows;
  const int64_t chunk = chunk_size(length, rows), chunks = (length + chunk - 1) / chunk;
  // Of each chunk but the first, the scores of the frame before it, relative to the best.
  Buffer starts((chunks - 1) * rows), scores((chunk + 1) * rows);
  const auto run_chunk = [&](int64_t i) {
    const int64_t begin = i * chunk, end = begin + chunk < length ? begin + chunk : length;
    if (i > 0) copy(scores, starts + (i - 1) * rows, rows);
    for (int64_t t = begin; t < end; ++t) {
      double* score = scores + (t - begin + 1) * rows;
      if (t == 0)
        first(score);
      else
        next(t, score - rows, score);
    }
    return scores + (end - begin) * rows;
  };
  double removed = 0;
  const double* last = nullptr;
  for (int64_t i = 0; i < chunks; ++i) {
    last = run_chunk(i);
    if (i + 1 == chunks) break;
    double top = -INFINITY;
    for (long x = 0; x < rows; ++x) top = last[x] > top ? last[x] : top;
    if (top == -INFINITY) return top;
    removed += top;
    for (long x = 0; x < rows; ++x) starts[i * rows + x] = last[x] - top;
  }
  long q = 0, c = 0;
  for (long j = 0; j < m.C; ++j)
    for (long p = 0; p < L; ++p)
      if (last[j * Lp + p] > last[c * Lp + q]) q = p, c = j;
  const double value = last[c * Lp + q];
  if (value == -INFINITY) return value;
  for (int64_t i = chunks - 1; i >= 0; --i) {
    const int64_t begin = i * chunk, end = begin + chunk < length ? begin + chunk : length;
    if (i + 1 < chunks) run_chunk(i);
    for (int64_t t = end - 1; t >= begin; --t) {
      path_phases[t] = static_cast<int32_t>(q), path_configs[t] = static_cast<int32_t>(c);
      if (t > 0) step_back(scores + (t - begin) * rows, q, c);
    }
  }
  return removed + value;
}

double viterbi(const void* model, const Video& v, int32_t* phases, int32_t* configs) {
  return BestPath(*static_cast<const Model*>(model), v).run(phases, configs);
}

}  // namespace
