// Products of rows with the transition tables. Rows are (C, Lp): a vector register holds the phases of one configuration.
#pragma once
#include "vectors.h"

namespace {

// Largest number of tools whose products share one pass over memory: 2^RADIX rows and their coefficients in registers.
#if defined(__AVX512F__) && defined(__AVX512DQ__)
constexpr int RADIX = 3, COUNT_RADIX = 2;
#else
constexpr int RADIX = 2, COUNT_RADIX = 1;
#endif

// out[c][q] = sum_p x[c][p] weights[p][q], for L phases known when compiling (0: any number). Adds up columns of out.
template <int FIXED>
void mix(const double* x, const double* weights, double* out, double* totals, long C, long L, long Lp) {
  const long phases = FIXED ? FIXED : L;
  for (long o = 0; o < Lp; o += W) {
    V w[FIXED ? FIXED : 1], total = {};
    if (FIXED)
      for (long p = 0; p < phases; ++p) w[p] = load(weights + p * Lp + o);
    const auto weight = [&](long p) { return FIXED ? w[p] : load(weights + p * Lp + o); };
    long c = 0;
    for (; c + 4 <= C; c += 4) {
      V sums[4] = {};
#pragma GCC unroll 8
      for (long p = 0; p < phases; ++p) {
        const V wp = weight(p);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) sums[i] += fill(x[(c + i) * Lp + p]) * wp;
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) store(out + (c + i) * Lp + o, sums[i]), total += sums[i];
    }
    for (; c < C; ++c) {
      V even = {}, odd = {};
      for (long p = 0; p + 1 < phases; p += 2) {
        even += fill(x[c * Lp + p]) * weight(p);
        odd += fill(x[c * Lp + p + 1]) * weight(p + 1);
      }
      if (phases % 2) even += fill(x[c * Lp + phases - 1]) * weight(phases - 1);
      even += odd;
      store(out + c * Lp + o, even), total += even;
    }
    store(totals + o, total);
  }
}

// counts[p][q] += scale[p][q] * sum_c x[c][p] y[c][q].
template <int FIXED>
void count_phases(const double* x, const double* y, const double* scale, double* counts, long C, long L, long Lp) {
  const long phases = FIXED ? FIXED : L;
  for (long o = 0; o < Lp; o += W) {
    // A few rows of counts at a time stay in registers.
    constexpr long group = FIXED ? FIXED : 4;
    for (long first = 0; first < phases; first += group) {
      const long n = FIXED ? FIXED : (phases - first < group ? phases - first : group);
      V sums[group] = {};
      for (long c = 0; c < C; ++c) {
        const V row = load(y + c * Lp + o);
#pragma GCC unroll 8
        for (long p = 0; p < n; ++p) sums[p] += fill(x[c * Lp + first + p]) * row;
      }
      for (long p = 0; p < n; ++p) {
        double* at = counts + (first + p) * Lp + o;
        store(at, load(at) + load(scale + (first + p) * Lp + o) * sums[p]);
      }
    }
  }
}

// Calls the functions above with the number of phases known when compiling, where it is small.
#define WITH_PHASES(function, L, ...)                      \
  switch (L) {                                             \
    case 1: function<1>(__VA_ARGS__); break;               \
    case 2: function<2>(__VA_ARGS__); break;               \
    case 3: function<3>(__VA_ARGS__); break;               \
    case 4: function<4>(__VA_ARGS__); break;               \
    case 5: function<5>(__VA_ARGS__); break;               \
    case 6: function<6>(__VA_ARGS__); break;               \
    case 7: function<7>(__VA_ARGS__); break;               \
    case 8: function<8>(__VA_ARGS__); break;               \
    default: function<0>(__VA_ARGS__);                     \
  }

// Some neighboring tools of the transition: R blocks of size 2 (dense is false), or one block of any size n.
struct Group {
  bool dense = false;
  int R = 1;
  long n = 2, left = 1, right = 1;  // numbers of configurations of the bits on the left and on the right
  const double* forward = nullptr;  // (R, n, n, Lp): from the first index to the second
  const double* backward = nullptr; // the same, transposed
  long offset = 0;                  // of the tables among those of all groups
};

// Calls body(first configuration) for all sets of configurations that differ in the group's own bits only.
template <class Body>
INLINE void for_each_set(const Group& g, long size, Body body) {
  for (long l = 0; l < g.left; ++l)
    for (long r = 0; r < g.right; ++r) body(l * size * g.right + r);
}

// Pushes one tool in registers: rows whose number differs in bit `bit` only, of 2^R.
template <int R>
INLINE void push_bit(V* rows, const V* block, int bit) {
  const int step = 1 << bit;
#pragma GCC unroll 8
  for (int i = 0; i < (1 << R); ++i)
    if (!(i & step)) {
      const V absent = rows[i], present = rows[i + step];
      rows[i] = absent * block[0] + present * block[2];
      rows[i + step] = absent * block[1] + present * block[3];
    }
}

template <int R, class Finish>
INLINE void push_pairs(const double* x, double* y, const double* table, const Group& g, long Lp, long o, Finish finish) {
  V blocks[R][4];
  for (int k = 0; k < R; ++k)
    for (int i = 0; i < 4; ++i) blocks[k][i] = load(table + (4 * k + i) * Lp + o);
  for_each_set(g, 1 << R, [&](long c) __attribute__((always_inline)) {
    V rows[1 << R];
#pragma GCC unroll 8
    for (int i = 0; i < (1 << R); ++i) rows[i] = load(x + (c + i * g.right) * Lp + o);
#pragma GCC unroll 3
    for (int k = 0; k < R; ++k) push_bit<R>(rows, blocks[k], R - 1 - k);
#pragma GCC unroll 8
    for (int i = 0; i < (1 << R); ++i) store(y + (c + i * g.right) * Lp + o, finish(rows[i], c + i * g.right));
  });
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
INLINE void push_group(const double* x, double* y, const Group& g, bool backward, long Lp, long o, Finish finish) {
  const double* table = backward ? g.backward : g.forward;
  if (g.dense)
    push_dense(x, y, table, g, Lp, o, finish);
  else if (g.R == 1)
    push_pairs<1>(x, y, table, g, Lp, o, finish);
  else if (g.R == 2)
    push_pairs<2>(x, y, table, g, Lp, o, finish);
  else
    push_pairs<3>(x, y, table, g, Lp, o, finish);
}

inline void push_group(const double* x, double* y, const Group& g, bool backward, long Lp) {
  for (long o = 0; o < Lp; o += W)
    push_group(x, y, g, backward, Lp, o, [](V v, long) __attribute__((always_inline)) { return v; });
}

// Adds the counts of the group's tools, from u before the group and v after it, and pulls v back through the group.
// Counts are multiplied by a scale per phase.
template <int R>
void pull_pairs(const double* u, double* v, const double* scale, double* counts, const Group& g, long Lp) {
  for (long o = 0; o < Lp; o += W) {
    V forward[R][4], backward[R][4], sums[R][4] = {};
    for (int k = 0; k < R; ++k)
      for (int i = 0; i < 4; ++i) {
        forward[k][i] = load(g.forward + (4 * k + i) * Lp + o);
        backward[k][i] = load(g.backward + (4 * k + i) * Lp + o);
      }
    const long stride = g.right * Lp;
    for_each_set(g, 1 << R, [&](long c) __attribute__((always_inline)) {
      V before[R][1 << R], after[1 << R];
#pragma GCC unroll 8
      for (int i = 0; i < (1 << R); ++i) {
        before[0][i] = load(u + c * Lp + i * stride + o);
        after[i] = load(v + c * Lp + i * stride + o);
      }
#pragma GCC unroll 3
      for (int k = 1; k < R; ++k) {
#pragma GCC unroll 8
        for (int i = 0; i < (1 << R); ++i) before[k][i] = before[k - 1][i];
        push_bit<R>(before[k], forward[k - 1], R - k);
      }
#pragma GCC unroll 3
      for (int k = R - 1; k >= 0; --k) {
        const int step = 1 << (R - 1 - k);
#pragma GCC unroll 8
        for (int i = 0; i < (1 << R); ++i)
          if (!(i & step)) {
            sums[k][0] += before[k][i] * after[i];
            sums[k][1] += before[k][i] * after[i + step];
            sums[k][2] += before[k][i + step] * after[i];
            sums[k][3] += before[k][i + step] * after[i + step];
          }
        push_bit<R>(after, backward[k], R - 1 - k);
      }
#pragma GCC unroll 8
      for (int i = 0; i < (1 << R); ++i) store(v + c * Lp + i * stride + o, after[i]);
    });
    for (int k = 0; k < R; ++k)
      for (int i = 0; i < 4; ++i) {
        double* at = counts + (4 * k + i) * Lp + o;
        store(at, load(at) + load(scale + o) * sums[k][i]);
      }
  }
}

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

// Largest sums instead of sums of products, for tables of logarithms.
template <int FIXED>
void mix_max(const double* x, const double* logs, double* out, long C, long L, long Lp) {
  const long phases = FIXED ? FIXED : L;
  for (long o = 0; o < Lp; o += W) {
    V w[FIXED ? FIXED : 1];
    if (FIXED)
      for (long p = 0; p < phases; ++p) w[p] = load(logs + p * Lp + o);
    const auto weight = [&](long p) { return FIXED ? w[p] : load(logs + p * Lp + o); };
    long c = 0;
    for (; c + 4 <= C; c += 4) {
      V best[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) best[i] = fill(x[(c + i) * Lp]) + weight(0);
#pragma GCC unroll 8
      for (long p = 1; p < phases; ++p) {
        const V wp = weight(p);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) best[i] = maximum(best[i], fill(x[(c + i) * Lp + p]) + wp);
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) store(out + (c + i) * Lp + o, best[i]);
    }
    for (; c < C; ++c) {
      V best = fill(x[c * Lp]) + weight(0);
      for (long p = 1; p < phases; ++p) best = maximum(best, fill(x[c * Lp + p]) + weight(p));
      store(out + c * Lp + o, best);
    }
  }
}

template <int R, class Finish>
INLINE void push_max_pairs(const double* x, double* y, const double* logs, const Group& g, long Lp, long o, Finish finish) {
  V blocks[R][4];
  for (int k = 0; k < R; ++k)
    for (int i = 0; i < 4; ++i) blocks[k][i] = load(logs + (4 * k + i) * Lp + o);
  for_each_set(g, 1 << R, [&](long c) __attribute__((always_inline)) {
    V rows[1 << R];
#pragma GCC unroll 8
    for (int i = 0; i < (1 << R); ++i) rows[i] = load(x + (c + i * g.right) * Lp + o);
#pragma GCC unroll 3
    for (int k = 0; k < R; ++k) {
      const int step = 1 << (R - 1 - k);
#pragma GCC unroll 8
      for (int i = 0; i < (1 << R); ++i)
        if (!(i & step)) {
          const V absent = rows[i], present = rows[i + step];
          rows[i] = maximum(absent + blocks[k][0], present + blocks[k][2]);
          rows[i + step] = maximum(absent + blocks[k][1], present + blocks[k][3]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < (1 << R); ++i) store(y + (c + i * g.right) * Lp + o, finish(rows[i], c + i * g.right));
  });
}

template <class Finish>
INLINE void push_max_group(const double* x, double* y, const double* logs, const Group& g, long Lp, long o, Finish finish) {
  if (g.dense) {
    for_each_set(g, g.n, [&](long c) {
      for (long j = 0; j < g.n; ++j) {
        V best = load(x + c * Lp + o) + load(logs + j * Lp + o);
        for (long i = 1; i < g.n; ++i)
          best = maximum(best, load(x + (c + i * g.right) * Lp + o) + load(logs + (i * g.n + j) * Lp + o));
        store(y + (c + j * g.right) * Lp + o, finish(best, c + j * g.right));
      }
    });
  } else if (g.R == 1) {
    push_max_pairs<1>(x, y, logs, g, Lp, o, finish);
  } else if (g.R == 2) {
    push_max_pairs<2>(x, y, logs, g, Lp, o, finish);
  } else {
    push_max_pairs<3>(x, y, logs, g, Lp, o, finish);
  }
}

}  // namespace
