// Products of rows with the transition tables. Rows are (C, Lp): a vector register holds the phases of one configuration.
#pragma once
#include <type_traits>

#include "model.h"

namespace {

// Calls body(log2 of the configurations of a block, Lp if it is W, else 0), both known when compiling.
template <class Body>
INLINE void with_block(const Model& m, Body body) {
  const auto by_phases = [&](auto block) __attribute__((always_inline)) {
    if (m.Lp == W)
      body(block, std::integral_constant<long, W>());
    else
      body(block, std::integral_constant<long, 0>());
  };
  switch (m.block) {
    case 0: by_phases(std::integral_constant<int, 0>()); break;
    case 1: by_phases(std::integral_constant<int, 1>()); break;
    case 2: by_phases(std::integral_constant<int, 2>()); break;
    default: by_phases(std::integral_constant<int, FUSED_RADIX>());
  }
}

// sum_p x[c][p] weights[p][q] of the N configurations from c, for the phases q at o. Of a single one, weights are (Lp, Lp).
template <int N>
INLINE void mix(const double* x, const double* weights, V* rows, long c, long L, long Lp, long o) {
  if (N == 1) {
    V even = {}, odd = {};
#pragma GCC unroll 4
    for (long p = 0; p < Lp; p += 2) {
      even += fill(x[c * Lp + p]) * load(weights + p * Lp + o);
      odd += fill(x[c * Lp + p + 1]) * load(weights + (p + 1) * Lp + o);
    }
    rows[0] = even + odd;
    return;
  }
  for (int i = 0; i < N; ++i) rows[i] = V{};
  for (long p = 0; p < L; ++p) {
    const V weight = load(weights + p * Lp + o);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) rows[i] += fill(x[(c + i) * Lp + p]) * weight;
  }
}

// Multiplies rows, whose numbers differ in R bits, by those bits' matrices: x' = x [[1, up], [down, 1]], or its transpose.
template <int R>
struct Pairs {
  V down[R ? R : 1], up[R ? R : 1];

  Pairs(const double* ratios, bool transposed, long Lp, long o) {
    for (int k = 0; k < R; ++k)
      down[k] = load(ratios + (2 * k + transposed) * Lp + o), up[k] = load(ratios + (2 * k + !transposed) * Lp + o);
  }

  INLINE void push(V* rows) const {
#pragma GCC unroll 4
    for (int k = 0; k < R; ++k) {
      const int step = 1 << (R - 1 - k);
#pragma GCC unroll 16
      for (int i = 0; i < (1 << R); ++i)
        if (!(i & step)) {
          const V absent = rows[i], present = rows[i + step];
          rows[i] = absent + present * down[k];
          rows[i + step] = present + absent * up[k];
        }
    }
  }
};

// Calls body(first configuration) for all sets of configurations that differ in the group's own bits only.
template <class Body>
INLINE void for_each_set(const Group& g, long size, Body body) {
  const long left = g.left, right = g.right;  // not read again after every store
  for (long l = 0; l < left; ++l)
    for (long r = 0; r < right; ++r) body(l * size * right + r);
}

// Calls body(R, configurations on the right) of pairs, known when compiling; the latter only for the strides of models of
// up to seven tools and W phases, otherwise 0. Strides unknown when compiling cost a register each.
template <class Body>
INLINE void with_layout(const Group& g, long Lp, Body body) {
  const auto by_stride = [&](auto R) __attribute__((always_inline)) {
    constexpr int first = 1 << FUSED_RADIX, step = 1 << COUNT_RADIX;
    if (Lp == W && g.right == 1)
      body(R, std::integral_constant<int, 1>());
    else if (Lp == W && g.right == step)
      body(R, std::integral_constant<int, step>());
    else if (Lp == W && g.right == step * step)
      body(R, std::integral_constant<int, step * step>());
    else if (Lp == W && g.right == first)
      body(R, std::integral_constant<int, first>());
    else
      body(R, std::integral_constant<int, 0>());
  };
  switch (g.R) {
    case 1: by_stride(std::integral_constant<int, 1>()); break;
    case 2: by_stride(std::integral_constant<int, 2>()); break;
    case 3: by_stride(std::integral_constant<int, 3>()); break;
    default: by_stride(std::integral_constant<int, RADIX>());
  }
}

// Takes the rows of each set of 2^R configurations through pairs.push. RIGHT: configurations on the right, or 0, as in
// with_layout.
template <int R, int RIGHT, class AnyPairs, class Finish>
INLINE void push_sets(const double* x, double* y, const AnyPairs& pairs, const Group& g, long Lp_, long o, Finish finish) {
  const long Lp = RIGHT ? W : Lp_, right = RIGHT ? RIGHT : g.right, stride = right * Lp;
  for_each_set(g, 1 << R, [=](long c) __attribute__((always_inline)) {
    V rows[1 << R];
    const double* from = x + c * Lp + o;
    double* to = y + c * Lp + o;
#pragma GCC unroll 16
    for (int i = 0; i < (1 << R); ++i) rows[i] = load(from + i * stride);
    pairs.push(rows);
#pragma GCC unroll 16
    for (int i = 0; i < (1 << R); ++i) store(to + i * stride, finish(rows[i], c + i * right));
  });
}

template <int R, int RIGHT, class Finish>
INLINE void push_pairs(const double* x, double* y, const Group& g, bool transposed, long Lp, long o, Finish finish) {
  push_sets<R, RIGHT>(x, y, Pairs<R>(g.ratios, transposed, RIGHT ? W : Lp, o), g, Lp, o, finish);
}

// out[..j..] = sum_i x[..i..] table[i][j]; y must not be x.
template <class Finish>
INLINE void push_dense(const double* x, double* y, const double* table, const Group& g, long Lp, long o, Finish finish) {
  const long n = g.n;
  for_each_set(g, n, [&](long c) {
    long j = 0;
    for (; j + 4 <= n; j += 4) {
      V sums[4] = {};
      for (long i = 0; i < n; ++i) {
        const V row = load(x + (c + i * g.right) * Lp + o);
        const double* entries = table + (i * n + j) * Lp + o;
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) sums[k] += row * load(entries + k * Lp);
      }
      for (int k = 0; k < 4; ++k) store(y + (c + (j + k) * g.right) * Lp + o, finish(sums[k], c + (j + k) * g.right));
    }
    for (; j < n; ++j) {
      V total = {};
      for (long i = 0; i < n; ++i) total += load(x + (c + i * g.right) * Lp + o) * load(table + (i * n + j) * Lp + o);
      store(y + (c + j * g.right) * Lp + o, finish(total, c + j * g.right));
    }
  });
}

// Pushes the phases at o of x through the group to y, which for pairs may be x: y[c] = finish(result, c).
template <class Finish>
INLINE void push_group(const double* x, double* y, const Group& g, bool transposed, long Lp, long o, Finish finish) {
  if (g.dense)
    push_dense(x, y, transposed ? g.backward : g.forward, g, Lp, o, finish);
  else
    with_layout(g, Lp, [&](auto R, auto right) __attribute__((always_inline)) {
      push_pairs<decltype(R)::value, decltype(right)::value>(x, y, g, transposed, Lp, o, finish);
    });
}

inline void push_group(const double* x, double* y, const Group& g, bool transposed, long Lp) {
  for (long o = 0; o < Lp; o += W)
    push_group(x, y, g, transposed, Lp, o, [](V v, long) __attribute__((always_inline)) { return v; });
}

// sums[i][j] = sum u[..i..] v[..j..] over the configurations i, j of the group's tools, and v pulled back through them.
template <int R, int RIGHT>
void count_pairs(const double* u, double* v, double* sums, const Group& g, long Lp_) {
  constexpr int n = 1 << R;
  const long Lp = RIGHT ? W : Lp_, stride = (RIGHT ? RIGHT : g.right) * Lp;
  for (long o = 0; o < Lp; o += W) {
    const Pairs<R> pairs(g.ratios, true, Lp, o);
    V totals[n * n] = {};
    for_each_set(g, n, [&](long c) __attribute__((always_inline)) {
      V before[n], after[n];
      const double* from = u + c * Lp + o;
      double* to = v + c * Lp + o;
#pragma GCC unroll 4
      for (int i = 0; i < n; ++i) before[i] = load(from + i * stride), after[i] = load(to + i * stride);
#pragma GCC unroll 4
      for (int i = 0; i < n; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < n; ++j) totals[i * n + j] += before[i] * after[j];
      pairs.push(after);
#pragma GCC unroll 4
      for (int i = 0; i < n; ++i) store(to + i * stride, after[i]);
    });
    for (int i = 0; i < n * n; ++i) store(sums + i * Lp + o, totals[i]);
  }
}

inline void count_pairs(const double* u, double* v, double* sums, const Group& g, long Lp) {
  with_layout(g, Lp, [&](auto R, auto right) {
    constexpr int radix = decltype(R)::value < COUNT_RADIX ? decltype(R)::value : COUNT_RADIX;
    count_pairs<radix, decltype(right)::value>(u, v, sums, g, Lp);
  });
}

// The same sums for a dense group, multiplied by a scale per phase and added to counts; v is left as it is.
inline void count_dense(const double* u, const double* v, const double* scale, double* counts, const Group& g, long Lp) {
  const long n = g.n, stride = g.right * Lp;
  for (long o = 0; o < Lp; o += W)
    for_each_set(g, n, [&](long c) {
      for (long i = 0; i < n; ++i) {
        const V row = load(u + c * Lp + i * stride + o) * load(scale + o);
        double* entries = counts + i * n * Lp + o;
        for (long j = 0; j < n; ++j)
          store(entries + j * Lp, load(entries + j * Lp) + row * load(v + c * Lp + j * stride + o));
      }
    });
}

// sums[p][q] = sum_c x[c][p] y[c][q]. N: phases p at once, whose sums stay in registers.
template <int N>
void count_phases(const double* x, const double* y, double* sums, long C, long Lp, long first) {
  for (long o = 0; o < Lp; o += W) {
    V totals[N] = {};
    for (long c = 0; c < C; ++c) {
      const V row = load(y + c * Lp + o);
#pragma GCC unroll 8
      for (int p = 0; p < N; ++p) totals[p] += fill(x[c * Lp + first + p]) * row;
    }
#pragma GCC unroll 8
    for (int p = 0; p < N; ++p) store(sums + (first + p) * Lp + o, totals[p]);
  }
}

inline void count_phases(const double* x, const double* y, double* sums, long C, long L, long Lp) {
  long p = 0;
  for (; p + 8 <= L; p += 8) count_phases<8>(x, y, sums, C, Lp, p);
  switch (L - p) {
    case 1: return count_phases<1>(x, y, sums, C, Lp, p);
    case 2: return count_phases<2>(x, y, sums, C, Lp, p);
    case 3: return count_phases<3>(x, y, sums, C, Lp, p);
    case 4: return count_phases<4>(x, y, sums, C, Lp, p);
    case 5: return count_phases<5>(x, y, sums, C, Lp, p);
    case 6: return count_phases<6>(x, y, sums, C, Lp, p);
    case 7: return count_phases<7>(x, y, sums, C, Lp, p);
  }
}

// Sums of joint rows over the configurations with each tool absent and present, for C = left * N configurations:
// high (left, Lp) holds the sums over the N neighbors, and low (N, Lp) those over all others.
//
// Overwrites both. out[2 k], out[2 k + 1] (Lp): of tool k.
inline void sum_tools(double* high, double* low, double* out, long left, long N, long Lp) {
  const auto halve = [&](double* rows, long size, long& k) {
    for (; size > 1; size /= 2, --k)
      for (long o = 0; o < Lp; o += W) {
        V absent = {}, present = {};
        for (long c = 0; c < size / 2; ++c) {
          const V even = load(rows + 2 * c * Lp + o), odd = load(rows + (2 * c + 1) * Lp + o);
          absent += even, present += odd;
          store(rows + c * Lp + o, even + odd);
        }
        store(out + 2 * k * Lp + o, absent), store(out + (2 * k + 1) * Lp + o, present);
      }
  };
  long k = -1;
  for (long n = left * N; n > 1; n /= 2) ++k;
  halve(low, N, k);
  halve(high, left, k);
}

// Adds a block of N neighboring rows to such sums.
template <int N>
INLINE void add_block(const V* rows, V* low, double* high, long c, long Lp, long o) {
  V sums[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) low[i] += rows[i], sums[i] = rows[i];
#pragma GCC unroll 3
  for (int n = N / 2; n; n /= 2)
#pragma GCC unroll 4
    for (int i = 0; i < n; ++i) sums[i] += sums[i + n];
  store(high + c / N * Lp + o, sums[0]);
}

// out[i] = the sum over phases of sums (n, Lp), multiplied by weights (Lp).
inline void weigh(const double* sums, const double* weights, double* out, long n, long Lp) {
  for (long i = 0; i < n; ++i) {
    V total = {};
    for (long o = 0; o < Lp; o += W) total += load(sums + i * Lp + o) * load(weights + o);
    out[i] = sum(total);
  }
}

}  // namespace
